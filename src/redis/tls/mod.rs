//! `rediss://`: the client for a URL, and the certificates that it trusts and shows.
//!
//! redis-rs does TLS itself, through rustls or the platform's library; when both features are
//! enabled it uses rustls. Its client keeps the certificates, so every connection that is made
//! from that client, such as the one for Pub/Sub, is made with them.

#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
mod native_tls;
#[cfg(feature = "tls-rustls")]
mod rustls;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod secure;

use super::connect_error::ConnectError;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};
use std::fmt;

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
const NO_TLS: &str = "`rediss://` needs the feature `tls-rustls` or `tls-native-tls`";

/// A certificate chain and its private key, both in PEM.
type Identity = (Vec<u8>, Vec<u8>);

/// The certificates that were set, in PEM.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    pub(super) root: Option<Vec<u8>>,
    pub(super) client: Option<Identity>,
}

impl Certificates {
    /// The name of a setting that is set, if one is.
    pub(super) fn setting(&self) -> Option<&'static str> {
        let root = self.root.as_ref().map(|_| "root_certificate");
        root.or(self.client.as_ref().map(|_| "client_certificate"))
    }

    /// A client that connects with these certificates.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, ConnectError> {
        match (info.addr(), self.setting()) {
            // The certificates that a user gave to redis-rs already are kept.
            (ConnectionAddr::TcpTls { tls_params, .. }, None) if tls_params.is_some() => open(info),
            (ConnectionAddr::TcpTls { .. }, _) => self.secure_client(info),
            (_, Some(setting)) => Err(ConnectError::setting(
                setting,
                "only a `rediss://` URL uses certificates",
            )),
            (_, None) => open(info),
        }
    }

    #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
    fn secure_client(&self, info: ConnectionInfo) -> Result<Client, ConnectError> {
        secure::client(info, self)
    }

    #[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
    fn secure_client(&self, _: ConnectionInfo) -> Result<Client, ConnectError> {
        Err(ConnectError::setting("url", NO_TLS))
    }
}

/// A private key is a secret, and certificates are long.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("root", &self.root.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}

/// What a URL says.
pub(super) fn parse(url: impl IntoConnectionInfo) -> Result<ConnectionInfo, ConnectError> {
    url.into_connection_info().map_err(wrong_url)
}

fn open(info: ConnectionInfo) -> Result<Client, ConnectError> {
    Client::open(info).map_err(wrong_url)
}

fn wrong_url(error: RedisError) -> ConnectError {
    // Without TLS, redis-rs fails to parse `rediss://`, and only the error's text says why.
    #[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
    if error.to_string().contains("TLS") {
        return ConnectError::setting("url", NO_TLS).with_source(error);
    }
    ConnectError::setting("url", "redis-rs does not accept it").with_source(error)
}
