//! From a transport to a store.

use super::{
    builder::Builder,
    check::Risk,
    clock::{ServerClock, Times, after},
    connect_error::ConnectError,
    notify::Notifications,
    outage::{Breakers, Outage},
    protocol::Protocol,
    shared::Store,
    start::ATTEMPT,
    store::RedisSemaphore,
    transport::{Cluster, Place, Sentinels, Server, Transport},
};
use redis::Client;
use std::sync::Arc;
use uuid::Uuid;

impl Builder {
    /// Makes a store on the server of a URL.
    pub(super) async fn on_server(self, client: Client) -> Result<RedisSemaphore, ConnectError> {
        let server = Server::new(client, self.timeout);
        self.started_at(server, Place::Url).await
    }

    /// Makes a store on the primary that Sentinels name.
    pub(super) async fn on_primary(
        self,
        sentinels: Sentinels,
    ) -> Result<RedisSemaphore, ConnectError> {
        let server = Server::of_sentinels(Arc::new(sentinels), self.timeout);
        self.started_at(server, Place::Primary).await
    }

    /// Makes a store on the cluster of these nodes.
    pub(super) async fn on_cluster(
        self,
        seeds: Vec<Client>,
    ) -> Result<RedisSemaphore, ConnectError> {
        let cluster = Cluster::connect(seeds, self.timeout, after(ATTEMPT)).await;
        let cluster = cluster.map_err(|error| self.judge(Place::Node).connecting(error))?;
        if !cluster.has_slots() {
            return Err(ConnectError::setting("cluster", "no node has any slots"));
        }
        self.started(cluster).await
    }

    /// Makes a store that nothing is known of.
    pub(super) fn on_supplied(self, transport: impl Transport) -> RedisSemaphore {
        self.build(transport)
    }

    async fn started_at(
        self,
        server: Server,
        place: Place,
    ) -> Result<RedisSemaphore, ConnectError> {
        let connected = server.connected(after(ATTEMPT)).await;
        connected.map_err(|error| self.judge(place).connecting(error))?;
        self.started(server).await
    }

    /// Makes a store whose first claims need not wait for anything.
    async fn started(self, transport: impl Transport) -> Result<RedisSemaphore, ConnectError> {
        let semaphore = self.build(transport);
        semaphore.check().await?.iter().for_each(Risk::warn);
        let warm = semaphore.warm_up().await;
        warm.map_err(|error| ConnectError::Unavailable(error.into_cause()))?;
        Ok(semaphore)
    }

    fn build(self, transport: impl Transport) -> RedisSemaphore {
        // Half as long as a UUID, because it is part of every id that travels and is stored.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let process: Arc<str> = format!("{:016x}", high ^ low).into();
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let notifications = Notifications::new(Arc::clone(&transport), &self.prefix, &process);
        let times = Times::new(self.lease, self.timeout);
        let clock = Arc::new(ServerClock::new(times));
        let policy = self.when_unavailable;
        let breakers = Breakers::new(Arc::clone(&transport), times, policy);
        let protocol = Protocol::new(
            transport,
            Arc::clone(&clock),
            self.prefix.clone(),
            process,
            self.lease.as_millis() as u64,
            Arc::clone(&breakers),
            self.min_replicas,
        );
        RedisSemaphore::new(Store::new(
            (self.prefix, self.database),
            times,
            clock,
            protocol,
            notifications,
            self.max_waiting_total,
            Outage::new(policy, breakers, times),
        ))
    }
}
