//! From a transport to a running store.

use super::{metered::Metered, report::Reports, shared::Store, store::RedisSemaphore};
use crate::redis::{
    builder::Builder,
    check::{Checks, Risk},
    clock::{ServerClock, Times, after},
    connect_error::ConnectError,
    core::{Policy, Settings},
    driver::{Driver, Wire},
    error::Error,
    notify::source::Source,
    outage::{Breakers, WhenUnavailable},
    protocol::Protocol,
    start::ATTEMPT,
    transport::{Cluster, Nodes, Place, Sentinels, Server, Supplied, Topology, Transport, slot_of},
};
use crate::semaphore::timer::timeout_at;
use futures_util::future::select_ok;
use redis::{Client, aio::ConnectionLike};
use std::sync::{Arc, OnceLock, atomic::AtomicUsize};
use uuid::Uuid;

impl Builder {
    /// Makes a store on the server of a URL.
    pub(super) async fn on_server(self, client: Client) -> Result<RedisSemaphore, ConnectError> {
        let transport = Server::new(client.clone(), self.timeout);
        self.started(Arc::new(client), transport).await
    }

    /// Makes a store on the primary that Sentinels name.
    pub(super) async fn on_primary(
        self,
        sentinels: Sentinels,
    ) -> Result<RedisSemaphore, ConnectError> {
        let sentinels = Arc::new(sentinels);
        let transport = Server::of_sentinels(Arc::clone(&sentinels), self.timeout);
        self.started(sentinels, transport).await
    }

    /// Makes a store on the cluster of these nodes.
    pub(super) async fn on_cluster(
        self,
        seeds: Vec<Client>,
    ) -> Result<RedisSemaphore, ConnectError> {
        let transport = Cluster::connect(seeds.clone(), self.timeout, after(ATTEMPT)).await;
        let transport = transport.map_err(|error| self.judge(Place::Node).connecting(error))?;
        let nodes = Nodes::find(seeds, after(ATTEMPT)).await;
        let nodes = nodes.map_err(|error| self.judge(Place::Node).connecting(error))?;
        if nodes.servers().is_empty() {
            return Err(ConnectError::setting("cluster", "no node has any slots"));
        }
        self.started(Arc::new(nodes), transport).await
    }

    /// Makes a store that nothing is known of.
    pub(super) fn on_supplied<C>(self, supplied: Supplied<C>) -> RedisSemaphore
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let transport = supplied.clone();
        self.build(Arc::new(supplied), transport)
    }

    /// Makes a store that a check has found to work, and whose first claims need not wait for anything.
    async fn started(
        self,
        topology: Arc<dyn Topology>,
        transport: impl Transport,
    ) -> Result<RedisSemaphore, ConnectError> {
        // One that works is enough.
        let servers = topology.servers().into_iter();
        let connect = |server| Arc::clone(&topology).connect(server);
        let connected = timeout_at(after(ATTEMPT), select_ok(servers.map(connect))).await;
        let connected = connected.unwrap_or_else(|late| Err(late.or(Error::Timeout(ATTEMPT))));
        connected.map_err(|error| self.judge(topology.place()).connecting(error))?;
        let times = Times::new(self.lease, self.timeout);
        let semaphore = self.build(topology, transport);
        semaphore.check().await?.iter().for_each(Risk::warn);
        semaphore
            .store()
            .driver
            .warm_up(after(times.budget()))
            .await;
        Ok(semaphore)
    }

    fn build(self, topology: Arc<dyn Topology>, transport: impl Transport) -> RedisSemaphore {
        // Half as long as a UUID, because it is part of every id that travels and is stored.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let process: Arc<str> = format!("{:016x}", high ^ low).into();
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let times = Times::new(self.lease, self.timeout);
        let has_slots = topology.has_slots();
        let slot = |key: &str| match has_slots {
            true => slot_of(format!("{}{key}", self.prefix).as_bytes()) as u16,
            false => 0,
        };
        let reports = Reports::new(self.timeout);
        let wire = Metered {
            transport: Wire::new(
                topology,
                self.prefix.clone(),
                Arc::clone(&process),
                self.lease,
            ),
            reports: reports.clone(),
        };
        let alert = Arc::clone(&reports.alert);
        let settings = Settings {
            lease: self.lease,
            timeout: self.timeout,
            slots_of_store: ["clock", "processes"].map(slot),
            slot_of_process: Some(slot(&format!("process:{process}"))),
            replicas: self.min_replicas,
            policy: policy(self.when_unavailable),
        };
        RedisSemaphore::new(Store {
            driver: Driver::start(wire, settings, reports),
            messages: Source {
                transport: Arc::clone(&transport),
                channel: format!("{}wake:{process}", self.prefix),
            },
            protocol: Protocol::new(
                Arc::clone(&transport),
                Arc::new(ServerClock::new(times)),
                self.prefix.clone(),
                process,
                self.lease.as_millis() as u64,
                Breakers::new(transport, times, self.when_unavailable),
                self.min_replicas,
            ),
            has_slots,
            prefix: self.prefix,
            database: self.database,
            server: OnceLock::new(),
            times,
            checks: Checks::default(),
            alert,
            max_waiting: self.max_waiting_total,
            waiting: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }
}

/// As the core calls it.
fn policy(when_unavailable: WhenUnavailable) -> Policy {
    match when_unavailable {
        WhenUnavailable::Refuse => Policy::Refuse,
        WhenUnavailable::Admit => Policy::Admit,
        WhenUnavailable::Share => Policy::Share,
        WhenUnavailable::ShareOf(fraction) => Policy::ShareOf(fraction),
    }
}
