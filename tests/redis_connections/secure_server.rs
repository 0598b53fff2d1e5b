//! A server with a TLS port beside its plain one.

use crate::{
    authority::{Authority, Signed},
    support::{redis::RedisServer, resp::Raw},
};
use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

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
        let folder = TempDir::new().expect("a temporary folder can be made");
        let authority = Authority::new();
        let files = write(folder.path(), &authority, &authority.sign(host));
        let mut args = args.to_vec();
        for (name, file) in &files {
            args.extend([*name, file.to_str().expect("the path is text")]);
        }
        let server = RedisServer::with(&args);
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

fn write(folder: &Path, authority: &Authority, own: &Signed) -> [(&'static str, PathBuf); 3] {
    [
        ("--tls-ca-cert-file", "ca.pem", &authority.certificate()),
        ("--tls-cert-file", "server.pem", &own.certificate),
        ("--tls-key-file", "server-key.pem", &own.key),
    ]
    .map(|(name, file, text)| {
        let file = folder.join(file);
        fs::write(&file, text).expect("the file is written");
        (name, file)
    })
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
