//! Connects a store to one server or to several, checks it, and starts it.

use super::{
    builder::Builder,
    driver::{Driver, Wire},
    error::{CallError, deadline_after, finish_by},
    fault::{ConnectError, Origin},
    protocol::describe,
    report::Reports,
    risk::Risk,
    store::{RedisSemaphore, Store},
    transport::{Connector, Endpoint, Inquiry, Nodes, Sentinels, ServerRole, Single, Topology},
    turns::Turns,
};
use crate::{observe::events, semaphore::Process};
use futures_util::{TryFutureExt, future::select_ok};
use proto::{
    core::CoreSettings,
    verbs::{Owner, SCHEMA, process_name},
};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, io::tcp::TcpSettings,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use uuid::Uuid;

/// The longest time of one attempt to connect.
const ATTEMPT_TIME: Duration = Duration::from_secs(1);

/// How long attempts that time out are repeated. When many processes start on a machine, it is busy for some seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time between two attempts, because a connector may report at once that it has timed out.
const PAUSE: Duration = Duration::from_millis(100);

/// Repeats a step while it times out. No attempt begins after the deadline.
async fn retry_timeouts<T, F>(deadline: Instant, step: impl Fn() -> F) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, ConnectError>>,
{
    loop {
        match step().await {
            Err(error) if error.is_late() && Instant::now() + PAUSE < deadline => {
                sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

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
    /// This method fails at once if the server refuses the connection. If the connection or the
    /// [check](RedisSemaphore::check) takes more than a second, it is tried again for five seconds in all. When a
    /// connection breaks later, the store reconnects.
    ///
    /// # Errors
    ///
    /// The [kind](ConnectError::kind) is [`Unavailable`](super::Kind::Unavailable) if another attempt may succeed: no
    /// server answers, or the server accepts no connections or writes just now. For example, it loads its data or has
    /// fewer replicas than [`min_replicas`](Self::min_replicas).
    ///
    /// Otherwise it is [`Misconfigured`](super::Kind::Misconfigured), and the error names the
    /// [setting](ConnectError::setting) and the remedy. The setting may be a user, a password or a certificate. It may
    /// also be a URL of a database that does not exist, of a replica, of a Sentinel, of one node of a cluster, or of a
    /// proxy that does not pass a needed command on. A right that the server does not grant is not a setting of the
    /// store, so the error names the right instead.
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
        let topology = Arc::new(Single::new(endpoint));
        self.start(topology, deadline_after(PATIENCE)).await
    }

    /// Connects to a cluster. It is enough to name some of its nodes: they know the others.
    ///
    /// The user, the password and the TLS settings are the same for all nodes. This method fails if no node answers in
    /// time or if the [check](RedisSemaphore::check) of the nodes takes too long, see [`connect`](Self::connect). One
    /// working node is enough. When slots move or a replica is promoted later, the store follows.
    ///
    /// - A semaphore lives on one node. A node that is down affects only its own semaphores, and they are served again
    ///   a moment after its replica is promoted. This needs the server setting `cluster-require-full-coverage no`:
    ///   otherwise all nodes refuse commands until the promotion.
    /// - While a slot moves, its semaphores are not served, because a server refuses a script when
    ///   some of its keys have moved and others have not. Claims are sent again until their time is over.
    /// - Several limits are decided one after the other, because they live on several nodes. Together they have the
    ///   time of one claim.
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
        let (deadline, origin) = (deadline_after(PATIENCE), self.origin(ServerRole::Node));
        let find = || {
            let found = Nodes::find(seeds.clone(), deadline_after(ATTEMPT_TIME));
            found.map_err(|error| origin.connect_error(error))
        };
        let nodes = retry_timeouts(deadline, find).await?;
        if nodes.servers().is_empty() {
            return Err(ConnectError::of_setting(
                "connect_cluster",
                "no node has any slots",
            ));
        }
        self.start(Arc::new(nodes), deadline).await
    }

    /// Connects to the primary that Sentinels name, and follows it when a replica takes its place. It is enough to name
    /// some Sentinels, but a majority of the named ones must be reachable, because a Sentinel that is cut off from the
    /// others would name an old primary. Attempts that time out are repeated as in [`connect`](Self::connect). If too
    /// few Sentinels can be reached later, the store continues with the primary that they named last, until that server
    /// restarts. Without the right to run `INFO` the store cannot detect a restart, so only existing connections
    /// continue.
    ///
    /// - The URLs have the user and the password of the Sentinels. Their choice of TLS applies to the Sentinels and to
    ///   the primary. A database number in the first URL is the primary's, because Sentinels have no databases.
    /// - [`credentials`](Self::credentials) sets the primary's user and password.
    /// - A replica may lack the last writes of its primary, so after a failover permits up to the limit may be granted
    ///   again, unless [`min_replicas`](Self::min_replicas) is set. Use the [token](crate::Permit::token) to fence
    ///   actions that must not happen twice.
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
        let primary = self.primary_template(endpoints[0].info().clone());
        self.database = primary.info().redis_settings().db();
        let endpoints = endpoints
            .iter()
            .map(|sentinel| self.sentinel_endpoint(sentinel.info().clone()));
        let sentinels = Sentinels::new(endpoints.collect(), name.into(), primary);
        let (deadline, origin) = (deadline_after(PATIENCE), self.origin(ServerRole::Sentinel));
        let find = || {
            let found = sentinels.find_primary(Inquiry::Run);
            found.map_err(|error| origin.connect_error(error))
        };
        retry_timeouts(deadline, find).await?;
        self.start(Arc::new(sentinels), deadline).await
    }

    /// The settings for connections to a primary, except for its address. The database and the protocol are those of a
    /// Sentinel's URL, and the user and the password are not.
    fn primary_template(&self, sentinel: ConnectionInfo) -> Endpoint {
        let of_url = sentinel.redis_settings();
        let settings = RedisConnectionInfo::default().set_db(of_url.db());
        let settings = settings.set_protocol(of_url.protocol());
        let info = sentinel.set_redis_settings(settings);
        Endpoint::new(info, self.connector.clone())
    }

    /// The settings for connections to a Sentinel, which has no databases. The user and the password are those of its
    /// URL.
    fn sentinel_endpoint(&self, url: ConnectionInfo) -> Endpoint {
        let settings = url.redis_settings().clone().set_db(0);
        let connector = Connector {
            credentials: None,
            ..self.connector.clone()
        };
        Endpoint::new(url.set_redis_settings(settings), connector)
    }

    /// Parses the URLs of one or more servers.
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

    /// Parses a URL. Its TCP options send small packets without delay, and bound the time until packets are
    /// acknowledged.
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
    fn origin(&self, role: ServerRole) -> Origin<'_> {
        Origin {
            role,
            login: self.login(role),
            prefix: &self.prefix,
        }
    }

    /// The setting that has the user and the password of servers in this role.
    fn login(&self, role: ServerRole) -> &'static str {
        let is_set = self.connector.credentials.is_some();
        match role {
            ServerRole::Primary => "credentials",
            ServerRole::Url | ServerRole::Node if is_set => "credentials",
            _ => "url",
        }
    }

    /// Makes a store, checks that it works, and prepares it so that its first claims need not wait.
    async fn start(
        self,
        topology: Arc<dyn Topology>,
        deadline: Instant,
    ) -> Result<RedisSemaphore, ConnectError> {
        let origin = self.origin(topology.role());
        let connect = || {
            // One working server is enough.
            let servers = topology.servers().into_iter();
            let connect = servers.map(|server| Arc::clone(&topology).connect(server, Inquiry::Run));
            let late = CallError::Timeout(ATTEMPT_TIME);
            let connected = finish_by(deadline_after(ATTEMPT_TIME), late, select_ok(connect));
            connected.map_err(|error| origin.connect_error(error))
        };
        retry_timeouts(deadline, connect).await?;
        let is_operator = self.is_operator;
        let semaphore = self.build(topology);
        // A tool of operators makes no claims, and its user may lack the rights that claims need.
        if is_operator {
            return Ok(semaphore);
        }
        let risks = retry_timeouts(deadline, || semaphore.check()).await?;
        let for_claims = risks.iter().filter(|risk| risk.is_of_claims());
        for_claims.for_each(|risk| events::risk(risk));
        let store = &semaphore.0;
        let ready = deadline_after(store.settings.call_time());
        store.driver.warm_up(ready).await;
        if !store.driver.reads_limits() && !risks.contains(&Risk::NoLimits) {
            events::risk(&Risk::NoLimits);
        }
        Ok(semaphore)
    }

    fn build(self, topology: Arc<dyn Topology>) -> RedisSemaphore {
        // XOR makes 64 random bits, because the bits that a UUID fixes differ between the halves.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let prefix = format!("{}{SCHEMA}", self.prefix);
        let owner = Arc::new(Owner {
            process: process_name(high ^ low).into(),
            lease_ms: self.lease.as_millis() as u64,
            prefix,
            about: describe(&Process::current()),
        });
        let settings = CoreSettings {
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
        let driver = Driver::start(wire, settings.clone(), move |news| observer.report(news));
        let (_version, slots) = topology.slots();
        driver.set_slots(slots);
        RedisSemaphore(Arc::new(Store {
            database: self.database,
            login: self.login(topology.role()),
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
            longest_window_ms: 0.into(),
        }))
    }
}

/// Fails if a URL cannot be that of a cluster node.
fn check_seed(seed: &Endpoint) -> Result<(), ConnectError> {
    let info = seed.info();
    let wrong = |reason| Err(ConnectError::of_setting("connect_cluster", reason));
    match (info.addr(), info.redis_settings().db()) {
        (ConnectionAddr::Unix(_), _) => wrong("the nodes of a cluster have no Unix sockets"),
        (_, 0) => Ok(()),
        _ => wrong("a cluster has only the database 0"),
    }
}
