//! The server that all tests start, and how clients reach it. `tests/matrix.sh` chooses both through the environment.
//!
//! | variable | |
//! |---|---|
//! | `REDIS_SERVER` | the server's file; `redis-server` on the `PATH` unless set |
//! | `REDIS_PROTOCOL` | the protocol of clients, `resp2` or `resp3`; redis-rs chooses unless set |
//! | `REDIS_CERTIFICATES` | a folder with `ca.pem`, `server.pem` and `server-key.pem`: clients use TLS |
//!
//! A client trusts `ca.pem` if `SSL_CERT_FILE` names it.

use super::ANY_PORT;
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The options for a server's certificates, with their files.
pub(super) const FILES: [(&str, &str); 3] = [
    ("--tls-ca-cert-file", "ca.pem"),
    ("--tls-cert-file", "server.pem"),
    ("--tls-key-file", "server-key.pem"),
];

/// The server's executable.
pub fn binary() -> OsString {
    env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The protocol that clients must use, if one is chosen.
pub fn protocol() -> Option<String> {
    env::var("REDIS_PROTOCOL").ok()
}

/// Returns true if clients use TLS.
pub fn has_tls() -> bool {
    certificates().is_some()
}

/// The arguments with which a server can be reached as chosen. Nodes and replicas then use TLS with each other too.
pub(super) fn arguments() -> Vec<String> {
    let Some(folder) = certificates() else {
        return Vec::new();
    };
    let own = ["--tls-port", ANY_PORT, "--tls-auth-clients", "no"];
    let peers = ["--tls-replication", "yes", "--tls-cluster", "yes"];
    let own = own.into_iter().chain(peers).map(ToOwned::to_owned);
    own.chain(tls_arguments(&folder)).collect()
}

/// The URL of a server on this port, for clients.
pub(super) fn url(port: u16) -> String {
    let scheme = if has_tls() { "rediss" } else { "redis" };
    let query = protocol().map(|protocol| format!("?protocol={protocol}"));
    format!("{scheme}://127.0.0.1:{port}/{}", query.unwrap_or_default())
}

fn certificates() -> Option<PathBuf> {
    env::var_os("REDIS_CERTIFICATES").map(PathBuf::from)
}

/// The arguments of a server whose certificates are in this folder.
pub(super) fn tls_arguments(folder: &Path) -> impl Iterator<Item = String> {
    let argument = |(name, file): (&str, &str)| {
        let path = folder.join(file).display().to_string();
        [name.to_owned(), path]
    };
    FILES.into_iter().flat_map(argument)
}
