//! The client for `rediss://`. Certificates that cannot work are detected before it connects.

use super::certificates::{Certificates, Identity};
#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
use super::native_tls as backend;
#[cfg(feature = "tls-rustls")]
use super::rustls as backend;
use crate::redis::connect_error::ConnectError;
use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};

const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

pub(super) fn client(
    info: ConnectionInfo,
    certificates: &Certificates,
) -> Result<Client, ConnectError> {
    backend::prepare();
    let client_tls = certificates.client.as_ref().map(identity).transpose()?;
    let root_cert = match &certificates.root {
        Some(root) => Some(checked(root)?),
        None if is_insecure(&info) => None,
        None => backend::system_roots()?,
    };
    let certificates = TlsCertificates {
        client_tls,
        root_cert,
    };
    // The URL and the client certificate are checked by now.
    Client::build_with_tls(info, certificates).map_err(|error| {
        ConnectError::setting("root_certificate", "it cannot be read").with_source(error)
    })
}

/// Checks that the key belongs to the certificate.
fn identity(identity: &Identity) -> Result<ClientTlsConfig, ConnectError> {
    let reason = "it is not a certificate and its private key, both in PEM";
    backend::check(identity)
        .map_err(|error| ConnectError::setting("client_certificate", reason).with_source(error))?;
    let (client_cert, client_key) = identity.clone();
    Ok(ClientTlsConfig {
        client_cert,
        client_key,
    })
}

/// Checks that there is at least one root certificate: rustls accepts an empty list, and then trusts
/// no server.
fn checked(root: &[u8]) -> Result<Vec<u8>, ConnectError> {
    match root
        .windows(CERTIFICATE.len())
        .any(|text| text == CERTIFICATE)
    {
        true => Ok(root.to_vec()),
        false => Err(ConnectError::setting(
            "root_certificate",
            "it holds no certificate in PEM",
        )),
    }
}

/// Whether the URL ends in `#insecure`, so that no certificate is verified.
fn is_insecure(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. })
}
