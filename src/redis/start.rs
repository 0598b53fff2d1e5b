//! What all ways to connect have in common.

use super::{builder::Builder, connect_error::ConnectError, mistake::Judge, tls, transport::Place};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};
use std::time::Duration;

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
}
