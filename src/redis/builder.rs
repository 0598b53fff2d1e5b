//! Settings of the store in Redis.

use super::{
    acquire::Store,
    clock::{ServerClock, Times, after},
    error::Error,
    notify::Notifications,
    protocol::Protocol,
    store::RedisSemaphore,
    transport::{Server, Supplied, Transport},
};
use redis::{
    Client, ConnectionInfo, IntoConnectionInfo, aio::ConnectionLike, io::tcp::TcpSettings,
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

impl RedisSemaphore {
    /// Connects to one server with the default settings. `url` is what redis-rs takes, such as
    /// `redis://127.0.0.1/`.
    ///
    /// # Errors
    ///
    /// See [`Builder::connect`].
    pub async fn connect(url: impl IntoConnectionInfo) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Uses a connection that is there already, with the default settings.
    ///
    /// # Errors
    ///
    /// See [`Builder::with_connection`].
    pub fn with_connection<C>(connection: C) -> Result<Self, Error>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::builder().with_connection(connection)
    }

    /// Settings to change before connecting.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// Settings of a [`RedisSemaphore`].
///
/// ```no_run
/// # async fn run() -> Result<(), tower_semaphore::redis::Error> {
/// use std::time::Duration;
/// use tower_semaphore::RedisSemaphore;
///
/// let semaphore = RedisSemaphore::builder()
///     .prefix("shop:")
///     .lease(Duration::from_secs(30))
///     .connect("redis://127.0.0.1/")
///     .await?;
/// # drop(semaphore); Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    prefix: String,
    lease: Duration,
    timeout: Duration,
    max_waiting: usize,
}

/// The shortest lease: below it, a refresh interval is shorter than a round trip may take.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// How long the first connection may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The longest lease, so that sums of times stay small.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Builder {
    fn default() -> Self {
        Self {
            prefix: "semaphore:".to_owned(),
            lease: Duration::from_secs(10),
            timeout: Duration::from_millis(250),
            max_waiting: 10_000,
        }
    }
}

impl Builder {
    /// What the names of all keys in Redis begin with: `semaphore:` unless set. Stores of one
    /// prefix share their permits. It must hold no brace.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a permit lasts without a refresh: 10 s unless set, 100 ms to a day. When a
    /// process dies, its permits are free after that.
    ///
    /// Stores that share a prefix may differ in it, say while a new value rolls out, by a factor
    /// of two at most: a semaphore's keys live for eight leases after their last use.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long one call to Redis may take: 250 ms unless set, at most a third of the lease. A
    /// whole acquire, with a reconnect and a second try, is over in twice that.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many claims of this process may wait at a time, for all keys together: 10,000 unless
    /// set. Beyond it they are refused with
    /// [`AcquireError::Overloaded`](crate::AcquireError::Overloaded).
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }

    /// Connects to one server, and again whenever the connection breaks.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the setting that is wrong; [`Error::Unavailable`] says that there
    /// is no server to be reached.
    pub async fn connect(self, url: impl IntoConnectionInfo) -> Result<RedisSemaphore, Error> {
        self.check()?;
        let setting = |error| Error::Setting {
            name: "url",
            reason: redis::RedisError::category(&error).to_owned(),
        };
        let info = url.into_connection_info().map_err(setting)?;
        let client = Client::open(self.tuned(info)).map_err(setting)?;
        let server = Server::connect(client.clone(), self.timeout, after(ATTEMPT)).await?;
        let semaphore = self.build(server, Some(client));
        semaphore.warm_up().await?;
        Ok(semaphore)
    }

    /// Uses a connection of any kind that redis-rs has: multiplexed, managed, or of a cluster.
    ///
    /// Calls end within our own [`timeout`](Self::timeout), but reconnecting is up to the
    /// connection, and it is driven by the runtime that made it: keep that running. Give a
    /// cluster's connection a response timeout too; it has none by default. Pub/Sub is not
    /// available on a supplied connection, so waiters poll: the head of a queue every 50 ms, the
    /// others every 250 ms. And since its keys may live on several nodes, no call is for two of
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the setting that is wrong.
    pub fn with_connection<C>(self, connection: C) -> Result<RedisSemaphore, Error>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.check()?;
        let timeout = self.timeout;
        let transport = Supplied {
            connection,
            timeout,
        };
        Ok(self.build(transport, None))
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |name, reason: &str| {
            Err(Error::Setting {
                name,
                reason: reason.to_owned(),
            })
        };
        if self.prefix.contains(['{', '}']) {
            return wrong(
                "prefix",
                "a brace in it would end the hash tag of every key",
            );
        }
        if self.lease < SHORTEST_LEASE || self.lease > LONGEST_LEASE {
            return wrong("lease", "it is not within 100 ms to a day");
        }
        if self.timeout.is_zero() || self.timeout > self.lease / 3 {
            return wrong("timeout", "it is not within zero and a third of the lease");
        }
        Ok(())
    }

    /// Without delay for small packets, and with a bound for packets that nobody acknowledges.
    fn tuned(&self, info: ConnectionInfo) -> ConnectionInfo {
        let settings = TcpSettings::default().set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let settings = settings.set_user_timeout(self.lease / 3);
        info.set_tcp_settings(settings)
    }

    fn build(self, transport: impl Transport, client: Option<Client>) -> RedisSemaphore {
        // Half as long as a UUID, because it is part of every id that travels and is stored.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let process: Arc<str> = format!("{:016x}", high ^ low).into();
        let notifications = Notifications::new(client, &self.prefix, &process);
        let times = Times::new(self.lease, self.timeout);
        let clock = Arc::new(ServerClock::new(times));
        let protocol = Protocol::new(
            Box::new(transport),
            Arc::clone(&clock),
            self.prefix.clone(),
            process,
            self.lease.as_millis() as u64,
        );
        RedisSemaphore::new(Store::new(
            self.prefix,
            times,
            clock,
            protocol,
            notifications,
            self.max_waiting,
        ))
    }
}
