//! A proxy in front of HTTP servers: a child process with a configuration in a temporary folder.

mod haproxy;
mod nginx;

pub(crate) use haproxy::HaProxy;
pub(crate) use nginx::Nginx;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;
use testing::{daemon::Daemon, port::Port, wait::eventually};
use tokio::net::TcpStream;

/// The longest time for a start, even on a busy machine.
const START: Duration = Duration::from_secs(30);

/// A running proxy. Dropping it kills the process and removes its folder.
#[derive(Debug)]
pub(crate) struct Proxy {
    process: Daemon,
    port: Port,
    folder: TempDir,
}

impl Proxy {
    /// Starts a proxy. `config` makes the text of its configuration from a folder for its files and the address where it
    /// must listen. `command` makes its command from the path of that configuration.
    async fn start(
        config: impl FnOnce(&Path, SocketAddr) -> String,
        command: impl FnOnce(&Path) -> Command,
        missing: &str,
    ) -> Self {
        let port = Port::reserve();
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("proxy.conf");
        let config = config(folder.path(), address(&port));
        fs::write(&file, config).expect("a folder that can be written");
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let mut command = command(&file);
        command.stderr(log.try_clone().expect("a descriptor"));
        command.stdout(log);
        let mut proxy = Self {
            process: Daemon::spawn(&mut command, folder.path(), missing),
            port,
            folder,
        };
        proxy.wait_until_listening().await;
        proxy
    }

    async fn wait_until_listening(&mut self) {
        eventually("the proxy listens", START, async || {
            let ended = self.process.process.try_wait().expect("a child");
            assert!(ended.is_none(), "the proxy has ended: {}", self.log());
            TcpStream::connect(self.address()).await.is_ok()
        })
        .await;
    }

    /// The address at which the proxy listens.
    pub(crate) fn address(&self) -> SocketAddr {
        address(&self.port)
    }

    /// The proxy's log.
    pub(crate) fn log(&self) -> String {
        let read = fs::read(self.folder.path().join("log"));
        String::from_utf8_lossy(&read.unwrap_or_default()).into_owned()
    }
}

fn address(port: &Port) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port.number).into()
}

/// The path of a program. Some are installed in a folder that is only on administrators' search path.
fn program(name: &str) -> PathBuf {
    let system = Path::new("/usr/sbin").join(name);
    if system.exists() { system } else { name.into() }
}
