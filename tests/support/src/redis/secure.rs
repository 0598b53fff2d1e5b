//! A server with a TLS port beside its plain port, and the authority that signs its certificate.

use super::{
    ANY_PORT, RedisServer,
    chosen::{FILES, tls_arguments},
};
use crate::resp::Raw;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};
use tempfile::TempDir;

/// Numbers the authorities, so that no two have the same name. OpenSSL tries only one certificate for each name.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A private CA.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Signed {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    #[expect(clippy::new_without_default, reason = "each authority is different")]
    pub fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = params(&format!("CA {number}"), []);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = CertifiedIssuer::self_signed(params, key());
        Self(signed.expect("an authority signs itself"))
    }

    /// The authority's certificate, in PEM.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for a host.
    pub fn sign(&self, host: &str) -> Signed {
        let params = params(host, [host.to_owned()]);
        let key = key();
        let certificate = params.signed_by(&key, &self.0).expect("it is signed").pem();
        Signed {
            certificate,
            key: key.serialize_pem(),
        }
    }
}

/// Parameters of a certificate. The names must differ: OpenSSL regards a certificate as self-signed if its issuer has the
/// same name.
fn params<const N: usize>(name: &str, hosts: [String; N]) -> CertificateParams {
    let mut params = CertificateParams::new(hosts).expect("the names are right");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key is made")
}

pub struct SecureServer {
    pub authority: Authority,
    /// A connection to the plain port, as the oracle.
    pub raw: Raw,
    /// `127.0.0.1:PORT`.
    pub address: String,
    folder: TempDir,
    _server: RedisServer,
}

impl SecureServer {
    /// A server that requires no client certificate.
    pub async fn start() -> Self {
        Self::with("127.0.0.1", &["--tls-auth-clients", "no"]).await
    }

    /// A server with a certificate for `host`, and with more arguments.
    pub async fn with(host: &str, args: &[&str]) -> Self {
        let files = Files::new(host);
        let paths = files.arguments();
        let mut all = vec!["--tls-port", ANY_PORT];
        all.extend(args.iter().copied().chain(paths.iter().map(String::as_str)));
        let server = RedisServer::with(&all);
        let Files { authority, folder } = files;
        Self {
            authority,
            raw: Raw::connect(server.port()).await,
            address: format!("127.0.0.1:{}", server.tls_port()),
            folder,
            _server: server,
        }
    }

    pub fn url(&self) -> String {
        format!("rediss://{}/", self.address)
    }

    /// The path of the authority's certificate.
    pub fn authority_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

/// An authority, and a folder with the certificates that it signed for a host.
pub struct Files {
    pub authority: Authority,
    pub folder: TempDir,
}

impl Files {
    pub fn new(host: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let authority = Authority::new();
        let own = authority.sign(host);
        let texts = [authority.certificate(), own.certificate, own.key];
        for ((_, file), text) in FILES.iter().zip(texts) {
            fs::write(folder.path().join(file), text).expect("the file is written");
        }
        Self { authority, folder }
    }

    /// The arguments of a server with these files.
    pub fn arguments(&self) -> Vec<String> {
        tls_arguments(self.folder.path()).collect()
    }
}
