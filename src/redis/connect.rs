//! From settings to a running store: on one server, on several, or over a connection that is supplied.

use super::{
    builder::Builder,
    core::Settings,
    driver::{Driver, Wire},
    error::{Error, after, by},
    fault::{ConnectError, Origin},
    protocol::{Owner, described},
    report::Reports,
    risk::Risk,
    store::{RedisSemaphore, Store},
    transport::{Inquiry, Nodes, Place, Sentinels, Single, Supplied, Topology, parts},
};
use crate::{observe::events, semaphore::Process};
use futures_util::future::select_ok;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, aio::ConnectionLike,
    io::tcp::TcpSettings,
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How long connecting for the first time may take.
const ATTEMPT: Duration = Duration::from_secs(1);

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

    /// Connects to a cluster, with the default settings. See [`Builder::connect_cluster`], also for errors, panics
    /// and cancel safety.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let nodes = ["redis://10.0.0.1:7000/", "redis://10.0.0.2:7000/"];
    /// let semaphore = RedisSemaphore::connect_cluster(nodes).await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn connect_cluster<I>(nodes: I) -> Result<Self, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        Self::builder().connect_cluster(nodes).await
    }

    /// Connects to the primary that Sentinels name, with the default settings. See
    /// [`Builder::connect_sentinel`], also for errors, panics and cancel safety.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/", "redis://10.0.0.3:26379/"];
    /// let semaphore = RedisSemaphore::connect_sentinel(sentinels, "shop").await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn connect_sentinel<I>(
        nodes: I,
        name: impl Into<String>,
    ) -> Result<Self, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        Self::builder().connect_sentinel(nodes, name).await
    }

    /// Makes a store on a connection that you supply, with the default settings. See
    /// [`Builder::with_connection`] for what differs from a store with connections of its own.
    ///
    /// # Errors
    ///
    /// See [`Builder::with_connection`].
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
        Self::builder().with_connection(connection)
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
    /// The [kind](ConnectError::kind) is [`Unavailable`](super::Kind::Unavailable) if another attempt may succeed: no
    /// server answers, or the server accepts no connections or no writes just now, because it loads its data or has
    /// fewer replicas than [`min_replicas`](Self::min_replicas).
    ///
    /// Otherwise it is [`Misconfigured`](super::Kind::Misconfigured), and the error names the
    /// [setting](ConnectError::setting) and the remedy: a URL of a database that does not exist, of a replica, of a
    /// Sentinel, of one node of a cluster, or of a proxy that does not pass a needed command on; a user or a password; a
    /// certificate. A right that the server does not grant is no setting of the store, and the error names the right.
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
        self.check(false)?;
        let client = self.client(url)?;
        self.database = client.get_connection_info().redis_settings().db();
        self.started(Arc::new(Single::new(client))).await
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
    /// - A command names keys of one slot, because keys may live on several nodes, and what is sent together
    ///   travels side by side.
    /// - Which of the keys are [unavailable](Self::when_unavailable) is found out for each sixteenth of
    ///   the slots that a cluster has. Keys of a living node whose slots are in a sixteenth with some of
    ///   a dead one's count as unavailable too, but for a claim now and then. All keys may be on one
    ///   server, so after the first failure claims for any key need a reservation in the share, as after an
    ///   outage. With [`connect_cluster`](Self::connect_cluster) it is found out for each node.
    ///
    /// # Errors
    ///
    /// The [setting](ConnectError::setting) that cannot work. A certificate cannot, because a supplied connection has
    /// its own.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_semaphore::{RedisSemaphore, redis::client::Client};
    ///
    /// let client = Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let semaphore = RedisSemaphore::builder().prefix("shop:").with_connection(connection)?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub fn with_connection<C>(mut self, connection: C) -> Result<RedisSemaphore, ConnectError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.check(false)?;
        #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
        if let Some(setting) = super::tls::setting(&self.certificates) {
            let reason = "a supplied connection has its own certificates";
            return Err(ConnectError::of_setting(setting, reason));
        }
        // `WAIT` holds up all that share a connection, and on a cluster it has no key to route it by.
        if self.min_replicas > 0 {
            let reason = "a supplied connection cannot wait for replicas";
            return Err(ConnectError::of_setting("min_replicas", reason));
        }
        self.database = connection.get_db();
        Ok(self.build(Arc::new(Supplied::new(connection))))
    }

    /// Connects to a cluster. It is enough to name some of its nodes: they know the others.
    ///
    /// The user, the password and the TLS settings are the same for all nodes. A node is queried within a
    /// second, and the nodes are [checked](RedisSemaphore::check) within another one, or this method fails.
    /// One node that works is enough. When slots move or a replica is promoted later, the store follows.
    ///
    /// - A semaphore lives on one node. A node that is down harms its own semaphores only, and a
    ///   moment after its replica was promoted they are served again. The server setting
    ///   `cluster-require-full-coverage no` is needed for that: otherwise all nodes refuse commands
    ///   until then.
    /// - While a slot moves, its semaphores are not served, because a server refuses a script when
    ///   some of its keys have moved and others have not. Claims are sent again for as long as their budget lasts.
    /// - Several limits are decided one after the other, because they live on several nodes, all in the budget of one
    ///   claim.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), and the setting `connect_cluster` if a server is not a node of a cluster.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections and ends the keeper.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let nodes = ["redis://10.0.0.1:7000/", "redis://10.0.0.2:7000/"];
    /// let semaphore = RedisSemaphore::builder().connect_cluster(nodes).await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn connect_cluster<I>(self, nodes: I) -> Result<RedisSemaphore, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        self.check(false)?;
        let seeds = self.clients(nodes, "connect_cluster")?;
        seeds.iter().try_for_each(check_seed)?;
        let nodes = Nodes::find(seeds, after(ATTEMPT)).await;
        let nodes = nodes.map_err(|error| self.origin(Place::Node).connect_error(error))?;
        if nodes.servers().is_empty() {
            return Err(ConnectError::of_setting(
                "connect_cluster",
                "no node has any slots",
            ));
        }
        self.started(Arc::new(nodes)).await
    }

    /// Connects to the primary that Sentinels name, and follows it when a replica takes its place. It is
    /// enough to name some Sentinels, but a majority of the named ones must be reachable: one that is
    /// cut off from the others would name an old primary. All this takes two and a half seconds at most, or
    /// this method fails. While too few Sentinels can be reached later, the store goes on with the primary
    /// that they named last, until that is started again. A user who may not run `INFO` does not know whether it was, so
    /// only connections that are there go on.
    ///
    /// - The URLs say how to connect to the Sentinels: their user and password, and TLS or not, which
    ///   the primary then has too. A database number in the first URL is the primary's, because
    ///   Sentinels have none.
    /// - [`credentials`](Self::credentials) sets the primary's user and password.
    /// - A replica may lack the last writes of its primary, so a failover may grant up to a limit's
    ///   number of permits again, unless [`min_replicas`](Self::min_replicas) is set. Fence with the
    ///   [token](crate::Permit::token) what must not happen.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), and the setting `connect_sentinel` if a server is not a Sentinel, or if the
    /// Sentinels do not know the name. If a Sentinel refuses the user or the password, the setting is `url`, and if the
    /// primary does, [`credentials`](Self::credentials). A server that is no primary yet, or no longer, is
    /// [`Unavailable`](super::Kind::Unavailable).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections and ends the keeper.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/", "redis://10.0.0.3:26379/"];
    /// let semaphore = RedisSemaphore::builder().connect_sentinel(sentinels, "shop").await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn connect_sentinel<I>(
        mut self,
        nodes: I,
        name: impl Into<String>,
    ) -> Result<RedisSemaphore, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        self.check(true)?;
        let clients = self.clients(nodes, "connect_sentinel")?;
        let template = self.primary(clients[0].get_connection_info().clone());
        let clients = clients.iter().map(without_database);
        let clients = clients.collect::<Result<_, _>>();
        let clients = clients.map_err(ConnectError::url)?;
        self.database = template.redis_settings().db();
        let sentinels = Sentinels::new(clients, name.into(), template);
        let found = sentinels.find_primary(Inquiry::Run).await;
        found.map_err(|error| self.origin(Place::Sentinel).connect_error(error))?;
        self.started(Arc::new(sentinels)).await
    }

    /// How to connect to a primary, but for its address.
    fn primary(&self, sentinel: ConnectionInfo) -> ConnectionInfo {
        let own = sentinel.redis_settings();
        let login = self.credentials.clone().unwrap_or_default();
        let settings = login.set_db(own.db()).set_protocol(own.protocol());
        sentinel.set_redis_settings(settings)
    }

    /// Clients for several servers of one kind: one at least.
    fn clients<I>(&self, urls: I, setting: &'static str) -> Result<Vec<Client>, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        let clients = urls.into_iter().map(|url| self.client(url));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        match clients.is_empty() {
            true => Err(ConnectError::of_setting(setting, "it names no server")),
            false => Ok(clients),
        }
    }

    /// A client whose TCP options are no delay for small packets, and a bound for packets that are not acknowledged.
    fn client(&self, url: impl IntoConnectionInfo) -> Result<Client, ConnectError> {
        let settings = TcpSettings::default().set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let settings = settings.set_user_timeout(self.lease / 3);
        let info = url.into_connection_info().map_err(ConnectError::url)?;
        let info = info.set_tcp_settings(settings);
        #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
        return super::tls::client(info, &self.certificates);
        #[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
        Client::open(info).map_err(ConnectError::url)
    }

    /// Where errors of servers come from that these settings name.
    fn origin(&self, place: Place) -> Origin<'_> {
        let prefix = &self.prefix;
        Origin { place, prefix }
    }

    /// Makes a store that a check has found to work, and whose first claims need not wait for anything.
    async fn started(self, topology: Arc<dyn Topology>) -> Result<RedisSemaphore, ConnectError> {
        // One that works is enough.
        let servers = topology.servers().into_iter();
        let connect = servers.map(|server| Arc::clone(&topology).connect(server, Inquiry::Run));
        let connected = by(after(ATTEMPT), Error::Timeout(ATTEMPT), select_ok(connect)).await;
        connected.map_err(|error| self.origin(topology.place()).connect_error(error))?;
        let is_operator = self.is_operator;
        let semaphore = self.build(topology);
        // Its user may have fewer rights than a claim needs, and no claim waits.
        if is_operator {
            return Ok(semaphore);
        }
        let risks = semaphore.check().await?;
        let of_claims = risks.iter().filter(|risk| risk.is_of_claims());
        of_claims.for_each(|risk| events::risk(risk));
        let store = &semaphore.0;
        let ready = after(store.settings.budget());
        store.driver.warm_up(ready).await;
        if !store.driver.reads_limits() && !risks.contains(&Risk::NoLimits) {
            events::risk(&Risk::NoLimits);
        }
        Ok(semaphore)
    }

    fn build(self, topology: Arc<dyn Topology>) -> RedisSemaphore {
        // Half as long as a UUID, because it is part of every id that travels and is stored.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let is_own = topology.place() != Place::Supplied;
        let parts = (!is_own).then(|| parts(&self.prefix));
        let owner = Arc::new(Owner {
            process: format!("{:016x}", high ^ low).into(),
            lease_ms: self.lease.as_millis() as u64,
            prefix: self.prefix.clone(),
            about: described(&Process::current()),
            parts: parts.unwrap_or_default(),
        });
        let settings = Settings {
            lease: self.lease,
            timeout: self.timeout,
            slots_of_store: owner.keys().map(|key| topology.slot(&key)),
            slot_of_process: Some(topology.slot(&owner.process_key())),
            claims: !self.is_operator,
            replicas: self.min_replicas,
            is_own,
            policy: self.when_unavailable,
        };
        let reports = Arc::new(Reports::new(self.lease, self.timeout));
        let wire = Wire::new(Arc::clone(&topology), Arc::clone(&owner));
        let observer = Arc::clone(&reports);
        let driver = Driver::start(wire, settings.clone(), move |news| observer.tell(news));
        driver.learn(topology.slots().1);
        RedisSemaphore(Arc::new(Store {
            database: self.database,
            topology,
            owner,
            settings,
            driver,
            reports,
            server: Default::default(),
            running_check: Default::default(),
            max_waiting: self.max_waiting_total,
            waiting: Default::default(),
        }))
    }
}

/// Whether a URL can be that of a node.
fn check_seed(seed: &Client) -> Result<(), ConnectError> {
    let info = seed.get_connection_info();
    let wrong = |reason| Err(ConnectError::of_setting("connect_cluster", reason));
    match (info.addr(), info.redis_settings().db()) {
        (ConnectionAddr::Unix(_), _) => wrong("the nodes of a cluster have no Unix sockets"),
        (_, 0) => Ok(()),
        _ => wrong("a cluster has only the database 0"),
    }
}

/// A Sentinel has no databases.
fn without_database(client: &Client) -> Result<Client, RedisError> {
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_db(0);
    Client::open(info.set_redis_settings(settings))
}
