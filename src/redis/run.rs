//! From a transport to a running store.

use super::{
    metered::Metered, report::Reports, requests::Requests, shared::Store, store::RedisSemaphore,
};
use crate::redis::{
    builder::Builder,
    check::{Checks, Risk},
    clock::{Times, after},
    connect_error::ConnectError,
    core::{Policy, Settings},
    driver::{Driver, Wire},
    error::Error,
    outage::WhenUnavailable,
    protocol::{Owner, described},
    start::ATTEMPT,
    transport::{Nodes, Place, Sentinels, Single, Topology},
};
use crate::semaphore::{Process, timer::timeout_at};
use futures_util::future::select_ok;
use redis::Client;
use std::sync::{Arc, OnceLock, atomic::AtomicUsize};
use uuid::Uuid;

impl Builder {
    /// Makes a store on the server of a URL.
    pub(super) async fn on_server(self, client: Client) -> Result<RedisSemaphore, ConnectError> {
        self.started(Arc::new(Single::new(client))).await
    }

    /// Makes a store on the primary that Sentinels name.
    pub(super) async fn on_primary(
        self,
        sentinels: Sentinels,
    ) -> Result<RedisSemaphore, ConnectError> {
        self.started(Arc::new(sentinels)).await
    }

    /// Makes a store on the cluster of these nodes.
    pub(super) async fn on_cluster(
        self,
        seeds: Vec<Client>,
    ) -> Result<RedisSemaphore, ConnectError> {
        let nodes = Nodes::find(seeds, after(ATTEMPT)).await;
        let nodes = nodes.map_err(|error| self.judge(Place::Node).connecting(error))?;
        if nodes.servers().is_empty() {
            return Err(ConnectError::setting("cluster", "no node has any slots"));
        }
        self.started(Arc::new(nodes)).await
    }

    /// Makes a store that nothing is known of.
    pub(super) fn on_supplied(self, supplied: impl Topology) -> RedisSemaphore {
        self.build(Arc::new(supplied))
    }

    /// Makes a store that a check has found to work, and whose first claims need not wait for anything.
    async fn started(self, topology: Arc<dyn Topology>) -> Result<RedisSemaphore, ConnectError> {
        // One that works is enough.
        let servers = topology.servers().into_iter();
        let connect = |server| Arc::clone(&topology).connect(server);
        let connected = timeout_at(after(ATTEMPT), select_ok(servers.map(connect))).await;
        let connected = connected.unwrap_or_else(|late| Err(late.or(Error::Timeout(ATTEMPT))));
        connected.map_err(|error| self.judge(topology.place()).connecting(error))?;
        let times = Times::new(self.lease, self.timeout);
        let semaphore = self.build(topology);
        semaphore.check().await?.iter().for_each(Risk::warn);
        semaphore
            .store()
            .driver
            .warm_up(after(times.budget()))
            .await;
        Ok(semaphore)
    }

    fn build(self, topology: Arc<dyn Topology>) -> RedisSemaphore {
        // Half as long as a UUID, because it is part of every id that travels and is stored.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let owner = Arc::new(Owner {
            process: format!("{:016x}", high ^ low).into(),
            lease_ms: self.lease.as_millis() as u64,
            prefix: self.prefix.clone(),
            about: described(&Process::current()),
            parts: topology.parts(&self.prefix),
        });
        let times = Times::new(self.lease, self.timeout);
        let reports = Reports::new(self.timeout);
        let wire = Metered {
            transport: Wire::new(Arc::clone(&topology), Arc::clone(&owner)),
            reports: reports.clone(),
        };
        let alert = Arc::clone(&reports.alert);
        let settings = Settings {
            lease: self.lease,
            timeout: self.timeout,
            slots_of_store: owner.keys().map(|key| topology.slot(&key)),
            slot_of_process: Some(topology.slot(&owner.process_key())),
            replicas: self.min_replicas,
            is_own: topology.place() != Place::Supplied,
            policy: policy(self.when_unavailable),
        };
        let driver = Driver::start(wire, settings, reports);
        driver.learn(topology.known_slots());
        RedisSemaphore::new(Store {
            requests: Requests {
                driver: driver.clone(),
                topology: Arc::clone(&topology),
                owner,
                times,
                replicas: self.min_replicas,
            },
            driver,
            topology,
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
