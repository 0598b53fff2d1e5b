//! `rediss://`: the certificates that connections trust and show.
//!
//! redis-rs does TLS itself, through rustls or the platform's library; when both features are enabled redis-rs uses
//! rustls. A `ConnectionInfo` keeps the certificates, so every connection that is made with it uses them, including
//! those of a user's connector.

use super::{builder::Builder, fault::ConnectError};
use crate::semaphore::BoxError;
use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};

const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "tls-rustls", feature = "tls-native-tls")))
)]
impl Builder {
    /// Sets the certificates, in PEM, of the authorities that may sign the server's certificate:
    /// for a private CA. They replace the system's root certificates, which are trusted unless this
    /// is set. Only a `rediss://` URL uses them; with another URL
    /// [`connect`](Self::connect) fails.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let semaphore = RedisSemaphore::builder()
    ///     .root_certificate(std::fs::read("ca.pem")?)
    ///     .connect("rediss://redis.internal:6380/")
    ///     .await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.root_cert = Some(pem.into());
        self
    }

    /// Sets the certificate with which this process identifies itself, followed by any intermediate certificates, and
    /// its private key, all in PEM. Needed for a server that requires client certificates. The key is in PKCS #8
    /// (`BEGIN PRIVATE KEY`); `tls-rustls` reads PKCS #1 and SEC 1 too. Only a `rediss://` URL uses them; with another
    /// URL [`connect`](Self::connect) fails.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::read;
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let semaphore = RedisSemaphore::builder()
    ///     .client_certificate(read("client.pem")?, read("client-key.pem")?)
    ///     .connect("rediss://redis.internal:6380/")
    ///     .await?;
    /// # drop(semaphore); Ok(()) }
    /// ```
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client_tls = Some(ClientTlsConfig {
            client_cert: certificate_pem.into(),
            client_key: key_pem.into(),
        });
        self
    }
}

/// The name of a certificate setting that is set, if any.
pub(super) fn setting(certificates: &TlsCertificates) -> Option<&'static str> {
    let root = certificates.root_cert.as_ref().map(|_| "root_certificate");
    let client = certificates.client_tls.as_ref();
    root.or(client.map(|_| "client_certificate"))
}

/// Adds certificates to the settings of connections. Certificates that cannot work are detected before connecting.
pub(super) fn with_certificates(
    info: ConnectionInfo,
    certificates: &TlsCertificates,
) -> Result<ConnectionInfo, ConnectError> {
    let setting = setting(certificates);
    let is_insecure = match (info.addr(), setting) {
        (ConnectionAddr::TcpTls { insecure, .. }, _) => *insecure,
        (_, Some(setting)) => {
            let reason = "only a `rediss://` URL uses certificates";
            return Err(ConnectError::of_setting(setting, reason));
        }
        (_, None) => return Ok(info),
    };
    backend::prepare();
    let mut certificates = certificates.clone();
    if let Some(own) = &certificates.client_tls {
        let reason = "it is not a certificate and its private key, both in PEM";
        let wrong = ConnectError::of_setting("client_certificate", reason);
        backend::check(own).map_err(|error| wrong.with_source(error))?;
    }
    match &certificates.root_cert {
        // rustls accepts an empty list, and then trusts no server.
        Some(root) if !has_certificate(root) => {
            let reason = "it holds no certificate in PEM";
            return Err(ConnectError::of_setting("root_certificate", reason));
        }
        None if !is_insecure => certificates.root_cert = backend::system_roots()?,
        _ => {}
    }
    // The URL and the client certificate have been checked above.
    let client = Client::build_with_tls(info, certificates).map_err(|error| {
        ConnectError::of_setting("root_certificate", "it cannot be read").with_source(error)
    })?;
    Ok(client.get_connection_info().clone())
}

fn has_certificate(pem: &[u8]) -> bool {
    let mut parts = pem.windows(CERTIFICATE.len());
    parts.any(|part| part == CERTIFICATE)
}

/// TLS through rustls.
#[cfg(feature = "tls-rustls")]
mod backend {
    use super::{BoxError, ClientTlsConfig, ConnectError};
    use base64::{Engine, prelude::BASE64_STANDARD};
    use rustls::{
        ClientConfig, RootCertStore,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    };
    use rustls_native_certs::load_native_certs;

    /// Installs a default provider for the process unless it has one. redis-rs uses the default provider, and without
    /// a default rustls panics if the dependency tree enables several providers.
    pub(super) fn prepare() {
        if CryptoProvider::get_default().is_none() {
            // Fails only if another thread was first to install a provider, which is then used.
            let _ = ring::default_provider().install_default();
        }
    }

    /// Returns the system's root certificates, to pass them to redis-rs. It loads them for each connection all the same,
    /// but loads none if its feature for the platform's library is enabled too.
    pub(super) fn system_roots() -> Result<Option<Vec<u8>>, ConnectError> {
        let loaded = load_native_certs();
        // Certificates that rustls does not accept are skipped. If redis-rs loads none itself, a server can still be
        // trusted by the accepted ones.
        let is_accepted = |der: &&CertificateDer<'static>| {
            let mut store = RootCertStore::empty();
            store.add((*der).clone()).is_ok()
        };
        let accepted = loaded.certs.iter().filter(is_accepted);
        let roots: String = accepted.map(pem).collect();
        if !roots.is_empty() {
            return Ok(Some(roots.into_bytes()));
        }
        let reason = "it is not set, and no root certificate of the system can be read";
        let error = ConnectError::of_setting("root_certificate", reason);
        Err(match loaded.errors.into_iter().next() {
            Some(source) => error.with_source(source),
            None => error,
        })
    }

    fn pem(certificate: &CertificateDer<'static>) -> String {
        let text = BASE64_STANDARD.encode(certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    /// Fails unless this is a certificate and its key.
    pub(super) fn check(own: &ClientTlsConfig) -> Result<(), BoxError> {
        let chain = CertificateDer::pem_slice_iter(&own.client_cert);
        let chain = chain.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&own.client_key)?;
        let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        config.with_client_auth_cert(chain, key)?;
        Ok(())
    }
}

/// TLS through the platform's library, which trusts the system's root certificates by itself.
#[cfg(not(feature = "tls-rustls"))]
mod backend {
    use super::{BoxError, ClientTlsConfig, ConnectError};
    use native_tls::{Identity, TlsConnector};

    pub(super) fn prepare() {}

    pub(super) fn system_roots() -> Result<Option<Vec<u8>>, ConnectError> {
        Ok(None)
    }

    /// Fails unless this is a certificate and its key.
    pub(super) fn check(own: &ClientTlsConfig) -> Result<(), BoxError> {
        let identity = Identity::from_pkcs8(&own.client_cert, &own.client_key)?;
        TlsConnector::builder().identity(identity).build()?;
        Ok(())
    }
}
