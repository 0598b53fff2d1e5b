//! Settings of the store in Redis.

use super::{
    fault::ConnectError,
    transport::{Connector, Credentials},
    when_unavailable::WhenUnavailable,
};
use crate::semaphore::BoxError;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
use redis::TlsCertificates;
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisResult, aio::MultiplexedConnection};
use std::{
    convert::Infallible,
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

/// Settings of a [`RedisSemaphore`](super::RedisSemaphore), which
/// [`RedisSemaphore::builder`](super::RedisSemaphore::builder) returns. [`connect`](Self::connect),
/// [`connect_cluster`](Self::connect_cluster) or [`connect_sentinel`](Self::connect_sentinel) makes the store.
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
    pub(super) connector: Connector,
    pub(super) min_replicas: u32,
    /// True for a tool of operators, which makes no claims.
    pub(super) is_operator: bool,
    /// The database number of the URL.
    pub(super) database: i64,
}

/// The shortest lease. The refresh interval of a shorter lease could be shorter than a round trip.
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
            connector: Connector::default(),
            min_replicas: 0,
            is_operator: false,
            database: 0,
        }
    }
}

impl Builder {
    /// Sets the prefix of all keys and channels in Redis: `semaphore:` unless set. Stores that have the same prefix on
    /// the same database share their semaphores. The prefix must contain no brace.
    ///
    /// The number of the schema follows the prefix: `semaphore:2:{concurrency:ann}:held` is a key of schema 2, which
    /// this release uses. So releases with different schemas share nothing, even under one prefix. See the guide on
    /// [deploys](crate::guide::outages#deploys).
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
    /// The leases of stores that share a prefix may differ by a factor of two at most, for example while a new value is
    /// rolled out. The reason is that a semaphore's keys expire eight leases after their last use, by the lease of the
    /// store that used them last.
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

    /// Sets how long one call to Redis may take: 250 ms unless set, at most a third of the lease. A claim that does not
    /// wait is answered within twice that time, including a reconnect and a second try.
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

    /// Sets how claims are decided while the store is unavailable: [`WhenUnavailable::Refuse`] unless set.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{RedisSemaphore, redis::WhenUnavailable};
    ///
    /// let builder = RedisSemaphore::builder().when_unavailable(WhenUnavailable::ShareOf { fraction: 0.25 });
    /// # drop(builder);
    /// ```
    pub fn when_unavailable(mut self, policy: WhenUnavailable) -> Self {
        self.when_unavailable = policy;
        self
    }

    /// Sets how many replicas must have a grant before it counts: 0 unless set.
    ///
    /// Replication is asynchronous, so a replica that takes the primary's place may lack its last grants. Then permits
    /// up to the limit are granted again while the earlier holders still run. With this setting a grant, a refresh or
    /// an operator's revocation counts only once this number of replicas has it (`WAIT`). If all replicas of the
    /// primary must have it, a failover forgets no permit, and the limit and the order of tokens hold across the
    /// failover. With a lower number, they hold only if the promoted replica has the writes. Sentinels choose the most
    /// advanced replica, but only among the replicas that they reach. So in a split network they may promote a replica
    /// that lacks some writes. The servers' clocks must agree to a twentieth of the [lease](Self::lease).
    ///
    /// - Each claim takes longer, by the time that a replica takes to answer the primary. Claims that are in flight
    ///   together share that wait.
    /// - A server that has fewer replicas, or whose replicas do not answer within half of the [timeout](Self::timeout),
    ///   counts as unavailable. Then claims fail with [`Kind::Unavailable`](super::Kind::Unavailable) or are decided by
    ///   [`when_unavailable`](Self::when_unavailable). Permits that cannot be refreshed are lost at the end of their
    ///   leases. After a failover the store is unavailable until the new primary has this number of replicas, so run
    ///   one more replica than this.
    /// - A user whom an access control list restricts needs `+wait` too.
    ///
    /// The server's own `min-replicas-to-write` does not bound what a failover forgets: it tests whether replicas were
    /// connected recently, not whether they have the new grant.
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

    /// Sets the function that makes connections, for example through a tunnel, with a custom resolver, or to count
    /// them. redis-rs makes them unless this is set. This applies to one server, to the nodes of a cluster, and to
    /// Sentinels and the primary that they name.
    ///
    /// The function is called for each new connection to each server. Each runtime that claims has one connection for
    /// commands. The keeper has one for commands and one for messages. The function must:
    ///
    /// - connect to the server of the [`ConnectionInfo`](super::client::ConnectionInfo). It may
    ///   replace the address and the settings of TCP and TLS, and must use the protocol, user, password and database as
    ///   they are. User, password and database may be absent, because the store logs in itself;
    /// - use the [`AsyncConnectionConfig`](super::client::AsyncConnectionConfig), which also brings the messages. It
    ///   must not change fields that are already set;
    /// - return a new connection each time, never a shared one;
    /// - neither block its thread nor take long. The future is polled by the runtime that needs the connection, perhaps
    ///   the keeper's. It is dropped after a second, or when the claim that waits for it is over.
    ///
    /// An error, a panic or a function that takes too long counts as a failed attempt to connect. Connecting the store
    /// then fails, mostly with [`Kind::Unavailable`](super::Kind::Unavailable). A running store counts the server as
    /// unavailable if it has no other connection, and tries again after a pause that grows to 2 s. The reason for a
    /// failure is not looked up over further connections, so an error of TLS is `Unavailable` too.
    ///
    /// A proxy behind the connector has to pass on `HELLO`, because messages come over RESP3.
    ///
    /// # Examples
    ///
    /// All connections go through a tunnel that ends on this machine:
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::{
    ///     RedisSemaphore,
    ///     redis::client::{Client, ConnectionAddr},
    /// };
    ///
    /// let semaphore = RedisSemaphore::builder()
    ///     .connector(|info, config| async move {
    ///         let tunnel = ConnectionAddr::Tcp("127.0.0.1".to_owned(), 16_379);
    ///         let client = Client::open(info.set_addr(tunnel))?;
    ///         client.get_multiplexed_async_connection_with_config(&config).await
    ///     })
    ///     .connect("redis://redis.internal/")
    ///     .await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub fn connector<C, F>(mut self, connect: C) -> Self
    where
        C: Fn(ConnectionInfo, AsyncConnectionConfig) -> F + Send + Sync + 'static,
        F: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        let connect = move |info, config| Box::pin(connect(info, config)) as _;
        self.connector.connect = Some(Arc::new(connect));
        self
    }

    /// Sets the function that returns the user and the password, for tokens that change, such as those of AWS IAM or
    /// Microsoft Entra. They replace the user and the password of the URLs for each server, node and primary. Sentinels
    /// keep the login of their URLs.
    ///
    /// The function is called for each new connection, also when the store connects again, so it should keep a token
    /// as long as that is valid. A connection keeps its login. If a server closes a connection when its token ends,
    /// the store reconnects, which only delays claims.
    ///
    /// The future is polled by the runtime that needs the connection, perhaps the keeper's, and must not block its
    /// thread. Connecting takes a second at most, and that includes this function.
    ///
    /// An error names this setting and has the function's own error as its cause. It counts as a failed attempt to
    /// connect. Connecting the store then fails with [`Kind::Unavailable`](super::Kind::Unavailable). A running store
    /// counts the server as unavailable if it has no other connection. A panic counts as an error. A password that the
    /// server refuses is [`Kind::Misconfigured`](super::Kind::Misconfigured), and names this setting too. The store
    /// never prints a password, so keep it out of the function's own errors.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn token() -> Result<String, std::io::Error> { Ok("secret".to_owned()) }
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::{RedisSemaphore, redis::Credentials};
    ///
    /// let semaphore = RedisSemaphore::builder()
    ///     .credentials(async || Ok::<_, std::io::Error>(Credentials::new("ann", token().await?)))
    ///     .connect("rediss://redis.internal/")
    ///     .await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub fn credentials<P, F, E>(mut self, provide: P) -> Self
    where
        P: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let provide = move || {
            let provided = provide();
            Box::pin(async move { provided.await.map_err(Into::into) }) as _
        };
        self.connector.credentials = Some(Arc::new(provide));
        self
    }

    /// Sets one user and password for all [`credentials`](Self::credentials), for example those of the primary that
    /// Sentinels name, or a password that is not percent-encoded as in a URL.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().fixed_credentials("ann", "secret");
    /// # drop(builder);
    /// ```
    pub fn fixed_credentials(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        let fixed = Credentials::new(user, password);
        self.credentials(move || ready(Ok::<_, Infallible>(fixed.clone())))
    }

    /// Sets whether the store is only a tool for operators: false unless set. Such a store offers the calls of
    /// [`Operate`](crate::Operate), and its claims fail with [`AcquireError::Closed`](crate::AcquireError::Closed).
    ///
    /// The store does not count among the processes that share a limit, and does not announce itself. Connecting checks
    /// no rights, so the user may have only rights to read. A call that the user may not make fails when it is made.
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

    /// Checks the settings, as far as no connection is needed.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
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
        if let WhenUnavailable::ShareOf { fraction } = self.when_unavailable
            && !(0.0..=1.0).contains(&fraction)
        {
            return wrong("when_unavailable", "the fraction is not within 0 and 1");
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
            let policy = WhenUnavailable::ShareOf { fraction };
            let builder = Builder::default().when_unavailable(policy);
            builder.check().is_ok()
        };
        assert!(is_right(0.0) && is_right(1.0));
        assert!(!is_right(1.1) && !is_right(-0.1) && !is_right(f64::NAN));
    }
}
