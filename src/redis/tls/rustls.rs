//! TLS through rustls.

use super::certificates::Identity;
use crate::redis::connect_error::ConnectError;
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use rustls_native_certs::load_native_certs;
use std::error::Error;

/// Installs a default provider for the process unless there is one. redis-rs uses the default
/// provider, and without one rustls panics if the dependency tree enables several.
pub(super) fn prepare() {
    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread has installed a provider meanwhile, and then that one is used.
        let _ = ring::default_provider().install_default();
    }
}

/// The system's root certificates. redis-rs would load them again for each connection, and not at
/// all when its feature for the platform's library is enabled too.
pub(super) fn system_roots() -> Result<Option<Vec<u8>>, ConnectError> {
    let loaded = load_native_certs();
    // redis-rs would refuse all certificates because of one that rustls does not accept.
    let accepted = |der: &CertificateDer<'static>| RootCertStore::empty().add(der.clone()).is_ok();
    let roots: String = loaded
        .certs
        .iter()
        .filter(|der| accepted(der))
        .map(pem)
        .collect();
    if !roots.is_empty() {
        return Ok(Some(roots.into_bytes()));
    }
    let reason = "it is not set, and no root certificate of the system can be read";
    let error = ConnectError::setting("root_certificate", reason);
    Err(match loaded.errors.into_iter().next() {
        Some(source) => error.with_source(source),
        None => error,
    })
}

fn pem(certificate: &CertificateDer<'static>) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// Whether this is a certificate and its key.
pub(super) fn check((certificate, key): &Identity) -> Result<(), Box<dyn Error + Send + Sync>> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let provider = CryptoProvider::get_default();
    let provider = provider.map_or_else(ring::default_provider, |chosen| (**chosen).clone());
    CertifiedKey::from_der(chain, key, &provider)?;
    Ok(())
}
