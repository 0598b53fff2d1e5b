//! A server with a TLS port beside its plain one, and the authority that signs its certificate.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};
use tempfile::TempDir;
use testing::{
    rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair},
    redis::RedisServer,
    resp::Raw,
};

/// So that no two have the same name: OpenSSL tries one certificate for each name.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A private CA.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = params(&format!("CA {number}"), []);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = CertifiedIssuer::self_signed(params, key());
        Self(signed.expect("an authority signs itself"))
    }

    /// Its own certificate, in PEM.
    pub(crate) fn certificate(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a host.
    pub(crate) fn sign(&self, host: &str) -> Signed {
        let params = params(host, [host.to_owned()]);
        let key = key();
        let certificate = params.signed_by(&key, &self.0).expect("it is signed").pem();
        Signed {
            certificate,
            key: key.serialize_pem(),
        }
    }
}

/// OpenSSL takes a certificate for self-signed if its issuer has the same name.
fn params<const N: usize>(name: &str, hosts: [String; N]) -> CertificateParams {
    let mut params = CertificateParams::new(hosts).expect("the names are right");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key is made")
}

pub(crate) struct SecureServer {
    pub(crate) authority: Authority,
    /// The oracle, at the plain port.
    pub(crate) raw: Raw,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    folder: TempDir,
    _server: RedisServer,
}

impl SecureServer {
    /// A server that requires no client certificate.
    pub(crate) async fn start() -> Self {
        Self::with("127.0.0.1", &["--tls-auth-clients", "no"]).await
    }

    /// One whose certificate is for `host`, with more arguments.
    pub(crate) async fn with(host: &str, args: &[&str]) -> Self {
        let Files { authority, folder } = Files::new(host);
        let mut all = args.to_vec();
        let files = arguments(folder.path());
        all.extend(files.iter().map(String::as_str));
        let server = RedisServer::with(&all);
        let mut raw = Raw::connect(server.port()).await;
        let address = open_tls_port(&mut raw).await;
        Self {
            authority,
            raw,
            address,
            folder,
            _server: server,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("rediss://{}/", self.address)
    }

    /// The file with the authority's certificate.
    pub(crate) fn authority_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

/// An authority, and a folder with what it has signed for a host.
pub(crate) struct Files {
    pub(crate) authority: Authority,
    pub(crate) folder: TempDir,
}

impl Files {
    pub(crate) fn new(host: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let authority = Authority::new();
        let own = authority.sign(host);
        let texts = [authority.certificate(), own.certificate, own.key];
        for ((_, file), text) in FILES.iter().zip(texts) {
            fs::write(folder.path().join(file), text).expect("the file is written");
        }
        Self { authority, folder }
    }
}

/// The arguments of a server, and the files that they name.
const FILES: [(&str, &str); 3] = [
    ("--tls-ca-cert-file", "ca.pem"),
    ("--tls-cert-file", "server.pem"),
    ("--tls-key-file", "server-key.pem"),
];

/// The arguments of a server whose files are in this folder.
pub(crate) fn arguments(folder: &Path) -> Vec<String> {
    let path = |file: &str| {
        folder
            .join(file)
            .to_str()
            .expect("the path is text")
            .to_owned()
    };
    let arguments = FILES
        .iter()
        .map(|(name, file)| [(*name).to_owned(), path(file)]);
    arguments.flatten().collect()
}

/// Another process may take the port between the check and the use.
async fn open_tls_port(raw: &mut Raw) -> String {
    for _ in 0..10 {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.local_addr())
            .expect("a port is free");
        let port = address.port().to_string();
        let reply = raw.cmd(&["CONFIG", "SET", "tls-port", &port]).await;
        if reply.text() == "OK" {
            return address.to_string();
        }
    }
    panic!("no TLS port came up");
}
