//! `rediss://`: the client for a URL, and the certificates that it trusts and shows.
//!
//! redis-rs does TLS itself, through rustls or the platform's library; when both features are
//! enabled redis-rs uses rustls. A client of redis-rs keeps the certificates, so every connection
//! that is made from the client uses them, the one for Pub/Sub too.

#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod secure;

use super::connect_error::ConnectError;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
use secure::client as secure_client;
use std::fmt;

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

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
const NO_TLS: &str = "`rediss://` needs the feature `tls-rustls` or `tls-native-tls`";

/// Makes a client that connects with these certificates.
pub(super) fn client(
    info: ConnectionInfo,
    certificates: &Certificates,
) -> Result<Client, ConnectError> {
    match (info.addr(), certificates.setting()) {
        // The certificates that a user gave to redis-rs already are kept.
        (ConnectionAddr::TcpTls { tls_params, .. }, None) if tls_params.is_some() => open(info),
        (ConnectionAddr::TcpTls { .. }, _) => secure_client(info, certificates),
        (_, Some(setting)) => Err(ConnectError::setting(
            setting,
            "only a `rediss://` URL uses certificates",
        )),
        (_, None) => open(info),
    }
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
fn secure_client(_: ConnectionInfo, _: &Certificates) -> Result<Client, ConnectError> {
    Err(ConnectError::setting("url", NO_TLS))
}

/// Parses a URL.
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
    ConnectError::url(error)
}
