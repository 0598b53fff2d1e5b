//! From a URL and certificates to a client.

use super::certificates::Certificates;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
use super::secure;
use crate::redis::connect_error::ConnectError;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
const NO_TLS: &str = "`rediss://` needs the feature `tls-rustls` or `tls-native-tls`";

/// Makes a client that connects with these certificates.
pub(in crate::redis) fn client(
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

#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
fn secure_client(
    info: ConnectionInfo,
    certificates: &Certificates,
) -> Result<Client, ConnectError> {
    secure::client(info, certificates)
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
fn secure_client(_: ConnectionInfo, _: &Certificates) -> Result<Client, ConnectError> {
    Err(ConnectError::setting("url", NO_TLS))
}

/// Parses a URL.
pub(in crate::redis) fn parse(
    url: impl IntoConnectionInfo,
) -> Result<ConnectionInfo, ConnectError> {
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
