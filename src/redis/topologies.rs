//! From settings to a store on several servers: a cluster, or a primary that Sentinels name.

use super::{
    builder::Builder,
    connect_error::ConnectError,
    credentials::Credentials,
    store::RedisSemaphore,
    transport::{Place, Sentinels, Unnamed},
};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

impl Builder {
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
    /// - While a slot moves, its semaphores are not served, because a server refuses scripts of which
    ///   some keys have moved and others not. Claims are sent again for as long as their budget lasts.
    /// - Several limits are decided one after the other, because they live on several nodes.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect). [`ConnectError::Setting`] is also a server that is not a node of a
    /// cluster.
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
    /// let semaphore = RedisSemaphore::builder().cluster(nodes).await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn cluster<I>(self, nodes: I) -> Result<RedisSemaphore, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        self.check()?;
        self.check_credentials()?;
        let seeds = self.clients(nodes, "cluster")?;
        seeds.iter().try_for_each(check_seed)?;
        self.on_cluster(seeds).await
    }

    /// Connects to the primary that Sentinels name, and follows it when a replica takes its place. It is
    /// enough to name some Sentinels, but most of those that are named have to be reached: one that is
    /// cut off from the others would name an old primary. All this takes two and a half seconds at most, or
    /// this method fails. While too few Sentinels can be reached later, the store goes on with the primary
    /// that they named last, until that is started again.
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
    /// Those of [`connect`](Self::connect). [`ConnectError::Setting`] is also a server that is not a Sentinel,
    /// and a name that the Sentinels do not know. [`ConnectError::Credentials`] names the URL if it is a
    /// Sentinel that refuses them, and [`credentials`](Self::credentials) if it is the primary. A server that
    /// is no primary yet, or no longer, is [`ConnectError::Unavailable`].
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
    /// let semaphore = RedisSemaphore::builder().sentinel(sentinels, "shop").await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub async fn sentinel<I>(
        mut self,
        nodes: I,
        name: impl Into<String>,
    ) -> Result<RedisSemaphore, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        self.check()?;
        let clients = self.clients(nodes, "sentinel")?;
        let template = self.primary(&clients)?;
        let clients = clients.iter().map(without_database);
        let clients = clients.collect::<Result<_, _>>()?;
        self.database = template.redis_settings().db();
        let sentinels = Sentinels::new(clients, name.into(), template);
        let found = sentinels.find_primary().await;
        found.map_err(|unnamed| self.unnamed(unnamed))?;
        self.on_primary(sentinels).await
    }

    /// How to connect to a primary, but for its address.
    fn primary(&self, sentinels: &[Client]) -> Result<ConnectionInfo, ConnectError> {
        let Some(first) = sentinels.first() else {
            return Err(ConnectError::setting("sentinel", "it names no server"));
        };
        let info = first.get_connection_info().clone();
        let own = info.redis_settings();
        let settings = RedisConnectionInfo::default()
            .set_db(own.db())
            .set_protocol(own.protocol());
        let settings = match &self.credentials {
            None => settings,
            Some(Credentials { user, password }) => {
                settings.set_username(user).set_password(password)
            }
        };
        Ok(info.set_redis_settings(settings))
    }

    /// Why Sentinels have named no primary.
    fn unnamed(&self, unnamed: Unnamed) -> ConnectError {
        match unnamed {
            Unnamed::WrongName => {
                ConnectError::setting("sentinel", "the Sentinels know no primary of this name")
            }
            Unnamed::Unavailable(error) => self.judge(Place::Sentinel).connecting(error),
        }
    }

    /// URLs say the user and the password of servers that they name.
    pub(super) fn check_credentials(&self) -> Result<(), ConnectError> {
        let reason = "only `sentinel` uses it: the URL of a server says its user and password";
        match self.credentials {
            None => Ok(()),
            Some(_) => Err(ConnectError::setting("credentials", reason)),
        }
    }
}

/// Whether a URL can be that of a node.
fn check_seed(seed: &Client) -> Result<(), ConnectError> {
    let info = seed.get_connection_info();
    let wrong = |reason| Err(ConnectError::setting("cluster", reason));
    match (info.addr(), info.redis_settings().db()) {
        (ConnectionAddr::Unix(_), _) => wrong("the nodes of a cluster have no Unix sockets"),
        (_, 0) => Ok(()),
        _ => wrong("a cluster has only the database 0"),
    }
}

/// A Sentinel has no databases.
fn without_database(client: &Client) -> Result<Client, ConnectError> {
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_db(0);
    Client::open(info.set_redis_settings(settings)).map_err(ConnectError::url)
}
