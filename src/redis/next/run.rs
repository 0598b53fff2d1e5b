//! From a transport to a running store.

use super::{
    builder::Builder,
    check::{Checks, Risk},
    clock::{ServerClock, Times},
    connect_error::ConnectError,
    core::Settings,
    driver::Driver,
    metered::Metered,
    outage::Breakers,
    protocol::Protocol,
    report::Reports,
    shared::Store,
    source::Source,
    store::RedisSemaphore,
    transport::Transport,
    wire::Wire,
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize},
};
use uuid::Uuid;

impl Builder {
    /// Makes a store that a check has found to work.
    pub(super) async fn started(
        self,
        transport: impl Transport,
    ) -> Result<RedisSemaphore, ConnectError> {
        let semaphore = self.build(transport)?;
        semaphore.check().await?.iter().for_each(Risk::warn);
        Ok(semaphore)
    }

    pub(super) fn build(self, transport: impl Transport) -> Result<RedisSemaphore, ConnectError> {
        if !transport.is_one_server() {
            return Err(ConnectError::setting("url", "only one server for now"));
        }
        // Half as long as a UUID, because it is part of every id that travels and is stored.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let process: Arc<str> = format!("{:016x}", high ^ low).into();
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let times = Times::new(self.lease, self.timeout);
        let messages = || Source {
            transport: Arc::clone(&transport),
            channel: format!("{}wake:{process}", self.prefix),
        };
        let protocol = || {
            Protocol::new(
                Arc::clone(&transport),
                Arc::new(ServerClock::new(times)),
                self.prefix.clone(),
                Arc::clone(&process),
                self.lease.as_millis() as u64,
                Breakers::new(Arc::clone(&transport), times, self.when_unavailable),
                self.min_replicas,
            )
        };
        let last = Arc::default();
        let wire = Wire {
            protocol: Arc::new(protocol()),
            source: Arc::new(messages()),
            last: Arc::clone(&last),
        };
        let reports = Reports::default();
        let settings = Settings {
            lease: self.lease,
            timeout: self.timeout,
            servers: 1,
        };
        let metered = Metered {
            transport: wire,
            reports: reports.clone(),
        };
        Ok(RedisSemaphore::new(Store {
            driver: Driver::start(metered, settings, reports),
            last,
            messages: messages(),
            protocol: protocol(),
            prefix: self.prefix,
            database: self.database,
            server: OnceLock::new(),
            times,
            checks: Checks::default(),
            max_waiting: self.max_waiting_total,
            waiting: [AtomicUsize::new(0), AtomicUsize::new(0)],
            is_closed: AtomicBool::new(false),
        }))
    }
}
