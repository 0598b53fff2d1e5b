//! From settings to a store: over connections of its own, or over one that is supplied.

use super::{
    builder::Builder, connect_error::ConnectError, store::RedisSemaphore, tls, transport::Supplied,
};
use redis::{IntoConnectionInfo, aio::ConnectionLike};

impl RedisSemaphore {
    /// Connects to one server, with the default settings. The [module docs](super#connections) list
    /// the URLs.
    ///
    /// # Errors
    ///
    /// See [`Builder::connect`].
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// See [`Builder::connect`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn connect(url: impl IntoConnectionInfo) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Makes a store on a connection that you supply, with the default settings. See
    /// [`Builder::build_on`] for what differs from a store with connections of its own.
    ///
    /// # Errors
    ///
    /// See [`Builder::build_on`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_semaphore::{RedisSemaphore, redis::client::Client};
    ///
    /// let client = Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let semaphore = RedisSemaphore::with_connection(connection)?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub fn with_connection<C>(connection: C) -> Result<Self, ConnectError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::builder().build_on(connection)
    }

    /// Returns the default settings, to change them before connecting.
    ///
    /// # Examples
    ///
    /// See [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Connects to one server. The [module docs](super#connections) list the URLs.
    ///
    /// The first connection is made within a second, and what a [check](RedisSemaphore::check) finds is
    /// known within another one, or this method fails. When a connection breaks later, the store
    /// reconnects.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Unavailable`] if another attempt may succeed: no server answers, or the server
    /// accepts no connections or no writes just now, because it loads its data or has fewer replicas than
    /// [`min_replicas`](Self::min_replicas).
    ///
    /// The other kinds name what a person has to mend: [`Setting`](ConnectError::Setting) a setting that
    /// cannot work, such as a URL of a database that does not exist, of a Sentinel, or of one node of a
    /// cluster; [`Credentials`](ConnectError::Credentials) a user or a password;
    /// [`Tls`](ConnectError::Tls) a certificate; and the others what the server is or does not permit.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection and ends the keeper.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().prefix("shop:");
    /// let semaphore = builder.connect("redis://ann:secret@127.0.0.1:6379/3").await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn connect(
        mut self,
        url: impl IntoConnectionInfo,
    ) -> Result<RedisSemaphore, ConnectError> {
        self.check()?;
        self.check_credentials()?;
        let info = self.tuned(tls::parse(url)?);
        let client = tls::client(info, &self.certificates)?;
        self.database = client.get_connection_info().redis_settings().db();
        self.on_server(client).await
    }

    /// Makes a store on a connection of any kind that redis-rs has: a `MultiplexedConnection`, a
    /// `ConnectionManager` or a `ClusterConnection`.
    ///
    /// A store on a supplied connection differs from one that [`connect`](Self::connect) makes:
    ///
    /// - Calls end within the store's own [`timeout`](Self::timeout), but only the connection can
    ///   reconnect. Give a cluster's connection a response timeout too; by default it has none.
    /// - The connection is driven by the runtime that made it. Keep that runtime running and its
    ///   workers unblocked, or permits cannot be refreshed.
    /// - Pub/Sub is not available, so waiters poll: the head of a queue every 50 ms, the others
    ///   every 250 ms.
    /// - Each claim is a call of its own, because keys may live on several nodes, and a node that does
    ///   not answer delays no claim of another. Refreshes and releases have a call for each semaphore.
    /// - Which of the keys are [unavailable](Self::when_unavailable) is found out for each sixteenth of
    ///   the slots that a cluster has. Keys of a living node whose slots are in a sixteenth with some of
    ///   a dead one's count as unavailable too, but for a claim now and then. All keys may be on one
    ///   server, so after the first failure claims for any key need a reservation in the share, as after an
    ///   outage. With [`cluster`](Self::cluster) it is found out for each node.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Setting`] names the setting that cannot work. A certificate cannot, because
    /// a supplied connection has its own.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_semaphore::{RedisSemaphore, redis::client::Client};
    ///
    /// let client = Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let semaphore = RedisSemaphore::builder().prefix("shop:").build_on(connection)?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub fn build_on<C>(mut self, connection: C) -> Result<RedisSemaphore, ConnectError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.check()?;
        self.check_credentials()?;
        if let Some(setting) = self.certificates.setting() {
            let reason = "a supplied connection has its own certificates";
            return Err(ConnectError::setting(setting, reason));
        }
        self.check_not_supplied()?;
        self.database = connection.get_db();
        Ok(self.on_supplied(Supplied { connection }))
    }
}
