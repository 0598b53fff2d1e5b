//! TLS through the platform's library.

use super::certificates::Identity;
use crate::redis::connect_error::ConnectError;
use native_tls::TlsConnector;

/// The platform's library needs no preparation.
pub(super) fn prepare() {}

/// None: the platform's library trusts the system's root certificates by itself.
pub(super) fn system_roots() -> Result<Option<Vec<u8>>, ConnectError> {
    Ok(None)
}

/// Whether this is a certificate and its key.
pub(super) fn check((certificate, key): &Identity) -> native_tls::Result<()> {
    let identity = native_tls::Identity::from_pkcs8(certificate, key)?;
    TlsConnector::builder().identity(identity).build()?;
    Ok(())
}
