//! Settings of the store in Redis.

use super::{core::WhenUnavailable, fault::ConnectError};
use redis::RedisConnectionInfo;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
use redis::TlsCertificates;
use std::time::Duration;

/// Settings of a [`RedisSemaphore`](super::RedisSemaphore), which
/// [`RedisSemaphore::builder`](super::RedisSemaphore::builder) returns. [`connect`](Self::connect)
/// or [`with_connection`](Self::with_connection) makes the store.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
/// use std::time::Duration;
/// use tower_semaphore::RedisSemaphore;
///
/// let semaphore = RedisSemaphore::builder()
///     .prefix("shop:")
///     .lease(Duration::from_secs(30))
///     .timeout(Duration::from_millis(500))
///     .max_waiting_total(1_000)
///     .connect("redis://127.0.0.1/")
///     .await?;
/// # drop(semaphore); Ok(()) }
/// ```
#[must_use = "settings do nothing until they are used to connect"]
#[derive(Debug, Clone)]
pub struct Builder {
    pub(super) prefix: String,
    pub(super) lease: Duration,
    pub(super) timeout: Duration,
    pub(super) max_waiting_total: u32,
    #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
    pub(super) certificates: TlsCertificates,
    pub(super) when_unavailable: WhenUnavailable,
    /// The user and the password of a primary.
    pub(super) credentials: Option<RedisConnectionInfo>,
    pub(super) min_replicas: u32,
    /// Whether it claims nothing.
    pub(super) is_operator: bool,
    /// The number of the database, which the connection has chosen.
    pub(super) database: i64,
}

/// The shortest lease: the refresh interval of a shorter one may be shorter than a round trip.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// The longest lease, so that sums of times stay small.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Builder {
    fn default() -> Self {
        Self {
            prefix: "semaphore:".to_owned(),
            lease: Duration::from_secs(10),
            timeout: Duration::from_millis(250),
            max_waiting_total: 10_000,
            #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
            certificates: TlsCertificates {
                client_tls: None,
                root_cert: None,
            },
            when_unavailable: WhenUnavailable::default(),
            credentials: None,
            min_replicas: 0,
            is_operator: false,
            database: 0,
        }
    }
}

impl Builder {
    /// Sets what the names of all keys and channels in Redis begin with: `semaphore:` unless set.
    /// Stores that have the same prefix on the same database share their semaphores. The prefix
    /// must contain no brace.
    ///
    /// What the keys mean is schema 1. A release with another schema says so in the CHANGELOG and has its number in
    /// the default prefix, as `semaphore2:`, so that it shares nothing with this one. A prefix of your own then needs a new
    /// name: see the guide on [deploys](crate::guide::outages#deploys).
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().prefix("shop:");
    /// # drop(builder);
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a permit lasts without a refresh, in whole milliseconds: 10 s unless set,
    /// 100 ms to a day. When a process dies, its permits are free after that time.
    ///
    /// The leases of stores that share a prefix may differ by a factor of two at most, for example
    /// while a new value is rolled out: a semaphore's keys expire eight leases after their last
    /// use, by the lease of the store that used them last.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().lease(Duration::from_secs(30));
    /// # drop(builder);
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long one call to Redis may take: 250 ms unless set, at most a third of the lease. A
    /// claim that does not wait is answered within twice that time, a reconnect and a second try
    /// included.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().timeout(Duration::from_millis(500));
    /// # drop(builder);
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many claims of this store may wait at a time, for all keys together: 10,000 unless
    /// set. Further claims that would wait are refused with
    /// [`AcquireError::Overloaded`](crate::AcquireError::Overloaded). The claim's
    /// [`with_max_waiting`](crate::Claim::with_max_waiting) bounds how many may wait for one key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().max_waiting_total(1_000);
    /// # drop(builder);
    /// ```
    pub fn max_waiting_total(mut self, max_waiting_total: u32) -> Self {
        self.max_waiting_total = max_waiting_total;
        self
    }

    /// Sets what becomes of a claim while the store is unavailable:
    /// [`WhenUnavailable::Refuse`] unless set.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{RedisSemaphore, redis::WhenUnavailable};
    ///
    /// let builder = RedisSemaphore::builder().when_unavailable(WhenUnavailable::ShareOf(0.25));
    /// # drop(builder);
    /// ```
    pub fn when_unavailable(mut self, policy: WhenUnavailable) -> Self {
        self.when_unavailable = policy;
        self
    }

    /// Sets how many replicas must have a grant before it counts: 0 unless set.
    ///
    /// Replication is asynchronous, so a replica that takes the primary's place may lack its last
    /// grants, and up to the limit are granted again while their holders still run. With this setting a
    /// grant, a refresh or an operator's revocation counts only once so many replicas have it (`WAIT`). If it is the number of
    /// replicas that the primary has, a failover forgets no permit, and the limit and the order of tokens
    /// hold across it. If it is fewer, that is so as long as one that has them is promoted: Sentinels
    /// choose the most advanced one, but only among the replicas that they reach, so a network that is split
    /// may leave them one that lacks some. The servers' clocks must agree to a twentieth of the
    /// [lease](Self::lease).
    ///
    /// - A claim takes as much longer as a replica takes to answer the primary. Claims that are in flight
    ///   together share that.
    /// - A server that has fewer replicas, or whose replicas do not answer within half of the
    ///   [timeout](Self::timeout), counts as unavailable: claims fail with
    ///   [`Kind::Unavailable`](super::Kind::Unavailable) or are decided by
    ///   [`when_unavailable`](Self::when_unavailable), and permits that cannot be refreshed are lost at
    ///   the end of their leases. After a failover that lasts until the new primary has as many
    ///   replicas, so run one more than this number.
    /// - A user whom an access control list restricts needs `+wait` too.
    ///
    /// The server's own `min-replicas-to-write` does not bound what a failover forgets: it tests whether
    /// replicas were there lately, not whether they have what is being granted.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().min_replicas(1);
    /// # drop(builder);
    /// ```
    pub fn min_replicas(mut self, min_replicas: u32) -> Self {
        self.min_replicas = min_replicas;
        self
    }

    /// Sets the user and the password for the primary that [`connect_sentinel`](Self::connect_sentinel) finds: the URLs
    /// there are those of the Sentinels. A server that has a password but no users calls its user
    /// `default`. With [`connect`](Self::connect) and [`connect_cluster`](Self::connect_cluster) the URLs say both, and
    /// this setting fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().credentials("ann", "secret");
    /// # drop(builder);
    /// ```
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let login = RedisConnectionInfo::default().set_username(user.into());
        self.credentials = Some(login.set_password(password.into()));
        self
    }

    /// Sets whether the store is a tool of operators: not unless set. It has what [`Operate`](crate::Operate) has, and
    /// claims nothing: claims fail with [`AcquireError::Closed`](crate::AcquireError::Closed).
    ///
    /// It counts as none of the processes that share a limit, says nothing of itself, and connecting checks no rights:
    /// so a user may be allowed only to look. What the user may not do fails when it is tried.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().operator(true);
    /// # drop(builder);
    /// ```
    pub fn operator(mut self, is_operator: bool) -> Self {
        self.is_operator = is_operator;
        self
    }

    /// Checks the settings that no connection is needed to check. URLs say the user and the password of servers that
    /// they name.
    pub(super) fn check(&self, takes_credentials: bool) -> Result<(), ConnectError> {
        let wrong = |name, reason| Err(ConnectError::of_setting(name, reason));
        if self.prefix.contains(['{', '}']) {
            return wrong("prefix", "a brace would end the hash tag of every key");
        }
        if self.lease < SHORTEST_LEASE || self.lease > LONGEST_LEASE {
            return wrong("lease", "it is not within 100 ms to a day");
        }
        if self.timeout.is_zero() || self.timeout > self.lease / 3 {
            return wrong("timeout", "it is not within zero and a third of the lease");
        }
        if let WhenUnavailable::ShareOf(fraction) = self.when_unavailable
            && !(0.0..=1.0).contains(&fraction)
        {
            return wrong("when_unavailable", "the fraction is not within 0 and 1");
        }
        if self.credentials.is_some() && !takes_credentials {
            let reason =
                "only `connect_sentinel` uses it: the URL of a server says its user and password";
            return wrong("credentials", reason);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_within_zero_and_one() {
        let is_right = |fraction| {
            let policy = WhenUnavailable::ShareOf(fraction);
            let builder = Builder::default().when_unavailable(policy);
            builder.check(false).is_ok()
        };
        assert!(is_right(0.0) && is_right(1.0));
        assert!(!is_right(1.1) && !is_right(-0.1) && !is_right(f64::NAN));
    }
}
