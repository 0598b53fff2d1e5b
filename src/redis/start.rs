//! From a transport to a store.

use super::{
    builder::Builder,
    check::Risk,
    clock::{ServerClock, Times},
    connect_error::ConnectError,
    mistake::Judge,
    notify::Notifications,
    outage::{Breakers, Outage},
    protocol::Protocol,
    shared::Store,
    store::RedisSemaphore,
    tls,
    transport::{Place, Transport},
};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How long connecting for the first time may take.
pub(super) const ATTEMPT: Duration = Duration::from_secs(1);

impl Builder {
    /// Clients for several servers of one kind.
    pub(super) fn clients<I>(
        &self,
        urls: I,
        setting: &'static str,
    ) -> Result<Vec<Client>, ConnectError>
    where
        I: IntoIterator<Item: IntoConnectionInfo>,
    {
        let clients = urls.into_iter().map(|url| {
            let info = self.tuned(tls::parse(url)?);
            tls::client(info, &self.certificates)
        });
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        match clients.is_empty() {
            true => Err(ConnectError::setting(setting, "it names no server")),
            false => Ok(clients),
        }
    }

    /// Sets TCP options: no delay for small packets, and a bound for packets that are not
    /// acknowledged.
    pub(super) fn tuned(&self, info: ConnectionInfo) -> ConnectionInfo {
        let settings = TcpSettings::default().set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let settings = settings.set_user_timeout(self.lease / 3);
        info.set_tcp_settings(settings)
    }

    /// What errors of servers mean that are connected to with these settings.
    pub(super) fn judge(&self, place: Place) -> Judge<'_> {
        let prefix = &self.prefix;
        Judge { place, prefix }
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
