//! From a transport to a store.

use super::{
    builder::Builder,
    check::Risk,
    clock::{ServerClock, Times},
    connect_error::ConnectError,
    notify::Notifications,
    outage::{Breakers, Outage},
    protocol::Protocol,
    shared::Store,
    store::RedisSemaphore,
    transport::{Server, Transport},
};
use redis::Client;
use std::sync::Arc;
use uuid::Uuid;

impl Builder {
    /// Makes a store on one server.
    pub(super) async fn started_at(
        self,
        _: Client,
        server: Server,
    ) -> Result<RedisSemaphore, ConnectError> {
        self.started(server).await
    }

    /// Makes a store that nothing is known of.
    pub(super) fn run(self, transport: impl Transport) -> Result<RedisSemaphore, ConnectError> {
        Ok(self.build(transport))
    }

    /// Makes a store whose first claims need not wait for anything.
    pub(super) async fn started(
        self,
        transport: impl Transport,
    ) -> Result<RedisSemaphore, ConnectError> {
        let semaphore = self.build(transport);
        semaphore.check().await?.iter().for_each(Risk::warn);
        let warm = semaphore.warm_up().await;
        warm.map_err(|error| ConnectError::Unavailable(error.into_cause()))?;
        Ok(semaphore)
    }

    pub(super) fn build(self, transport: impl Transport) -> RedisSemaphore {
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
