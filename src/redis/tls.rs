//! `rediss://`: the client for a URL, and the certificates that it trusts and shows.
//!
//! redis-rs does TLS itself, through rustls or the platform's library; when both features are
//! enabled redis-rs uses rustls. A client of redis-rs keeps the certificates, so every connection
//! that is made from the client uses them, the one for Pub/Sub too.

use super::connect_error::ConnectError;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};
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
        (ConnectionAddr::TcpTls { .. }, _) => secure::client(info, certificates),
        (_, Some(setting)) => Err(ConnectError::setting(
            setting,
            "only a `rediss://` URL uses certificates",
        )),
        (_, None) => open(info),
    }
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

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
mod secure {
    use crate::redis::{connect_error::ConnectError, tls};
    use redis::{Client, ConnectionInfo};

    pub(super) fn client(_: ConnectionInfo, _: &tls::Certificates) -> Result<Client, ConnectError> {
        Err(ConnectError::setting("url", tls::NO_TLS))
    }
}

/// The client for `rediss://`. Certificates that cannot work are detected before it connects.
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod secure {
    use crate::redis::{connect_error::ConnectError, tls};
    use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};

    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

    pub(super) fn client(
        info: ConnectionInfo,
        certificates: &tls::Certificates,
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
    fn identity(identity: &tls::Identity) -> Result<ClientTlsConfig, ConnectError> {
        let reason = "it is not a certificate and its private key, both in PEM";
        backend::check(identity).map_err(|error| {
            ConnectError::setting("client_certificate", reason).with_source(error)
        })?;
        let (client_cert, client_key) = identity.clone();
        Ok(ClientTlsConfig {
            client_cert,
            client_key,
        })
    }

    /// Checks that there is at least one root certificate: rustls accepts an empty list, and then trusts
    /// no server.
    fn checked(root: &[u8]) -> Result<Vec<u8>, ConnectError> {
        let mut parts = root.windows(CERTIFICATE.len());
        let reason = "it holds no certificate in PEM";
        match parts.any(|part| part == CERTIFICATE) {
            true => Ok(root.to_vec()),
            false => Err(ConnectError::setting("root_certificate", reason)),
        }
    }

    /// Whether the URL ends in `#insecure`, so that no certificate is verified.
    fn is_insecure(info: &ConnectionInfo) -> bool {
        matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. })
    }

    /// TLS through rustls.
    #[cfg(feature = "tls-rustls")]
    mod backend {
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
                // Fails only if another thread was first to install a provider, which is then used.
                let _ = ring::default_provider().install_default();
            }
        }

        /// The system's root certificates. redis-rs would load them again for each connection, and not at
        /// all when its feature for the platform's library is enabled too.
        pub(super) fn system_roots() -> Result<Option<Vec<u8>>, ConnectError> {
            let loaded = load_native_certs();
            // redis-rs would refuse all certificates because of one that rustls does not accept.
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
        pub(super) fn check(
            (certificate, key): &(Vec<u8>, Vec<u8>),
        ) -> Result<(), Box<dyn Error + Send + Sync>> {
            let chain =
                CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
            let key = PrivateKeyDer::from_pem_slice(key)?;
            let provider = CryptoProvider::get_default();
            let provider =
                provider.map_or_else(ring::default_provider, |chosen| (**chosen).clone());
            CertifiedKey::from_der(chain, key, &provider)?;
            Ok(())
        }
    }

    /// TLS through the platform's library.
    #[cfg(not(feature = "tls-rustls"))]
    mod backend {
        use crate::redis::connect_error::ConnectError;
        use native_tls::TlsConnector;

        /// The platform's library needs no preparation.
        pub(super) fn prepare() {}

        /// None: the platform's library trusts the system's root certificates by itself.
        pub(super) fn system_roots() -> Result<Option<Vec<u8>>, ConnectError> {
            Ok(None)
        }

        /// Whether this is a certificate and its key.
        pub(super) fn check((certificate, key): &(Vec<u8>, Vec<u8>)) -> native_tls::Result<()> {
            let identity = native_tls::Identity::from_pkcs8(certificate, key)?;
            TlsConnector::builder().identity(identity).build()?;
            Ok(())
        }
    }
}
