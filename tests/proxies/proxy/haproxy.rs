//! HAProxy.

use super::{Proxy, program};
use std::{net::SocketAddr, path::Path, process::Command};

const MISSING: &str =
    "these tests need `haproxy`: `apt-get install haproxy`, or `brew install haproxy`";

/// An HAProxy in front of these servers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HaProxy<'a> {
    pub(crate) servers: &'a [SocketAddr],
    /// Additional lines of the section `listen`.
    pub(crate) listen: &'a str,
}

impl HaProxy<'_> {
    pub(crate) async fn start(self) -> Proxy {
        let config = |_: &Path, listen| self.config(listen);
        Proxy::start(config, command, MISSING).await
    }

    fn config(self, listen: SocketAddr) -> String {
        let servers = self.servers.iter().enumerate();
        let servers: String = servers
            .map(|(number, server)| format!("    server s{number} {server}\n"))
            .collect();
        let further = self.listen;
        format!(
            "global
    maxconn 1024
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
listen service
    bind {listen}
    {further}
{servers}"
        )
    }
}

fn command(config: &Path) -> Command {
    let mut command = Command::new(program("haproxy"));
    // Runs in the foreground as a single process.
    command.arg("-db").arg("-f").arg(config);
    command
}
