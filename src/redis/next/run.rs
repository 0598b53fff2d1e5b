//! From a transport to a running store.

use super::{metered::Metered, report::Reports, shared::Store, store::RedisSemaphore};
use crate::redis::{
    builder::Builder,
    check::{Checks, Risk},
    clock::{ServerClock, Times, after},
    connect_error::ConnectError,
    core::{Policy, Settings},
    driver::{Driver, Wire},
    notify::source::Source,
    outage::{Breakers, WhenUnavailable},
    protocol::Protocol,
    transport::{Server, Transport},
};
use redis::Client;
use std::sync::{Arc, OnceLock, atomic::AtomicUsize};
use uuid::Uuid;

impl Builder {
    pub(super) async fn started(
        self,
        transport: impl Transport,
    ) -> Result<RedisSemaphore, ConnectError> {
        self.run(transport)
    }

    pub(super) fn run(self, _: impl Transport) -> Result<RedisSemaphore, ConnectError> {
        let reason = "the store on the core is for one server of a URL yet";
        Err(ConnectError::setting("connection", reason))
    }

    /// Makes a store that a check has found to work, and whose first claims need not wait for anything.
    pub(super) async fn started_at(
        self,
        client: Client,
        transport: Server,
    ) -> Result<RedisSemaphore, ConnectError> {
        let times = Times::new(self.lease, self.timeout);
        let semaphore = self.build(client, transport);
        semaphore.check().await?.iter().for_each(Risk::warn);
        semaphore
            .store()
            .driver
            .warm_up(after(times.budget()))
            .await;
        Ok(semaphore)
    }

    fn build(self, client: Client, transport: Server) -> RedisSemaphore {
        // Half as long as a UUID, because it is part of every id that travels and is stored.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let process: Arc<str> = format!("{:016x}", high ^ low).into();
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let times = Times::new(self.lease, self.timeout);
        let reports = Reports::new(self.timeout);
        let wire = Metered {
            transport: Wire::new(
                client,
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
            slots_of_store: [0, 0],
            slot_of_process: Some(0),
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
