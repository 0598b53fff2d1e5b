//! From settings to a running store: on one server or on several.

use super::{
    builder::Builder,
    driver::{Driver, Wire},
    error::{CallError, after, by},
    fault::{ConnectError, Origin},
    protocol::described,
    report::Reports,
    risk::Risk,
    store::{RedisSemaphore, Store},
    transport::{Connector, Endpoint, Inquiry, Nodes, Place, Sentinels, Single, Topology},
    turns::Turns,
};
use crate::{observe::events, semaphore::Process};
use futures_util::future::select_ok;
use proto::{
    core::Settings,
    verbs::{Owner, SCHEMA, process_name},
};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, io::tcp::TcpSettings,
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
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, ConnectError> {
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
        I: IntoIterator<Item: AsRef<str>>,
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
        I: IntoIterator<Item: AsRef<str>>,
    {
        Self::builder().connect_sentinel(nodes, name).await
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
    pub async fn connect(mut self, url: impl AsRef<str>) -> Result<RedisSemaphore, ConnectError> {
        self.check()?;
        let endpoint = self.endpoint(url)?;
        self.database = endpoint.info().redis_settings().db();
        self.started(Arc::new(Single::new(endpoint))).await
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
        I: IntoIterator<Item: AsRef<str>>,
    {
        self.check()?;
        let seeds = self.endpoints(nodes, "connect_cluster")?;
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
        I: IntoIterator<Item: AsRef<str>>,
    {
        self.check()?;
        let endpoints = self.endpoints(nodes, "connect_sentinel")?;
        let primary = self.primary(endpoints[0].info().clone());
        self.database = primary.info().redis_settings().db();
        let endpoints = endpoints
            .iter()
            .map(|sentinel| self.sentinel(sentinel.info().clone()));
        let sentinels = Sentinels::new(endpoints.collect(), name.into(), primary);
        let found = sentinels.find_primary(Inquiry::Run).await;
        found.map_err(|error| self.origin(Place::Sentinel).connect_error(error))?;
        self.started(Arc::new(sentinels)).await
    }

    /// How to connect to a primary, but for its address.
    fn primary(&self, sentinel: ConnectionInfo) -> Endpoint {
        let own = sentinel.redis_settings();
        let settings = RedisConnectionInfo::default().set_db(own.db());
        let settings = settings.set_protocol(own.protocol());
        let info = sentinel.set_redis_settings(settings);
        Endpoint::new(info, self.connector.clone())
    }

    /// A Sentinel has no databases, and its user and password are those of its URL.
    fn sentinel(&self, url: ConnectionInfo) -> Endpoint {
        let settings = url.redis_settings().clone().set_db(0);
        let connector = Connector {
            credentials: None,
            ..self.connector.clone()
        };
        Endpoint::new(url.set_redis_settings(settings), connector)
    }

    /// Several servers of one kind: one at least.
    fn endpoints<I>(&self, urls: I, setting: &'static str) -> Result<Vec<Endpoint>, ConnectError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let endpoints = urls.into_iter().map(|url| self.endpoint(url));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        match endpoints.is_empty() {
            true => Err(ConnectError::of_setting(setting, "it names no server")),
            false => Ok(endpoints),
        }
    }

    /// A server whose TCP options are no delay for small packets, and a bound for packets that are not acknowledged.
    fn endpoint(&self, url: impl AsRef<str>) -> Result<Endpoint, ConnectError> {
        let settings = TcpSettings::default().set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let settings = settings.set_user_timeout(self.lease / 3);
        let info = url.as_ref().into_connection_info();
        let info = info.map_err(ConnectError::url)?.set_tcp_settings(settings);
        #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
        let info = super::tls::with_certificates(info, &self.certificates)?;
        Ok(Endpoint::new(info, self.connector.clone()))
    }

    /// The origin of errors of the servers that these settings name.
    fn origin(&self, place: Place) -> Origin<'_> {
        Origin {
            place,
            login: self.login(place),
            prefix: &self.prefix,
        }
    }

    /// The setting that has the user and the password of such servers.
    fn login(&self, place: Place) -> &'static str {
        let is_set = self.connector.credentials.is_some();
        match place {
            Place::Primary => "credentials",
            Place::Url | Place::Node if is_set => "credentials",
            _ => "url",
        }
    }

    /// Makes a store that a check has found to work, and whose first claims need not wait for anything.
    async fn started(self, topology: Arc<dyn Topology>) -> Result<RedisSemaphore, ConnectError> {
        // One that works is enough.
        let servers = topology.servers().into_iter();
        let connect = servers.map(|server| Arc::clone(&topology).connect(server, Inquiry::Run));
        let connected = by(
            after(ATTEMPT),
            CallError::Timeout(ATTEMPT),
            select_ok(connect),
        )
        .await;
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
        let ready = after(store.settings.call_time());
        store.driver.warm_up(ready).await;
        if !store.driver.reads_limits() && !risks.contains(&Risk::NoLimits) {
            events::risk(&Risk::NoLimits);
        }
        Ok(semaphore)
    }

    fn build(self, topology: Arc<dyn Topology>) -> RedisSemaphore {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let prefix = format!("{}{SCHEMA}", self.prefix);
        let owner = Arc::new(Owner {
            process: process_name(high ^ low).into(),
            lease_ms: self.lease.as_millis() as u64,
            prefix,
            about: described(&Process::current()),
        });
        let settings = Settings {
            lease: self.lease,
            timeout: self.timeout,
            slots_of_store: owner.keys().map(|key| topology.slot(&key)),
            slot_of_process: Some(topology.slot(&owner.process_key())),
            claims: !self.is_operator,
            replicas: self.min_replicas,
            policy: self.when_unavailable.policy(),
        };
        let reports = Arc::new(Reports::new(self.lease, self.timeout));
        let wire = Wire::new(Arc::clone(&topology), Arc::clone(&owner));
        let observer = Arc::clone(&reports);
        let driver = Driver::start(wire, settings.clone(), move |news| observer.tell(news));
        driver.learn(topology.slots().1);
        RedisSemaphore(Arc::new(Store {
            database: self.database,
            login: self.login(topology.place()),
            topology,
            owner,
            settings,
            driver,
            reports,
            server: Default::default(),
            running_check: Default::default(),
            max_waiting: self.max_waiting_total,
            waiting: Default::default(),
            turns: Turns::new(),
        }))
    }
}

/// Whether a URL can be that of a node.
fn check_seed(seed: &Endpoint) -> Result<(), ConnectError> {
    let info = seed.info();
    let wrong = |reason| Err(ConnectError::of_setting("connect_cluster", reason));
    match (info.addr(), info.redis_settings().db()) {
        (ConnectionAddr::Unix(_), _) => wrong("the nodes of a cluster have no Unix sockets"),
        (_, 0) => Ok(()),
        _ => wrong("a cluster has only the database 0"),
    }
}
