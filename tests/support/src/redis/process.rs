//! A server's process: how it starts, how it is known to be ours, how it ends.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a start may take.
pub(super) const START: Duration = Duration::from_secs(10);
const MISSING: &str = "these tests need `redis-server` on the PATH: \
    `apt-get install redis-server`, or `brew install redis`";

/// A server process, and the watcher that ends it if this process cannot.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) server: Child,
    watcher: Child,
}

impl Running {
    /// Starts the server, and a watcher that would also remove `folder`.
    pub(super) fn spawn(command: &mut Command, folder: &Path) -> Self {
        let server = command.spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("{MISSING}"),
            _ => panic!("redis-server does not start: {error}"),
        });
        let watcher = watch(server.id(), folder);
        Self { server, watcher }
    }

    /// Sends `PING` until the answer is from this very process, not from another on its port.
    pub(super) fn wait_until_it_answers(&mut self, port: u16) -> io::Result<()> {
        let end = Instant::now() + START;
        while Instant::now() < end {
            if self.server.try_wait()?.is_some() {
                return Err(ErrorKind::AddrInUse.into());
            }
            if answering_pid(port).is_ok_and(|pid| pid == self.server.id()) {
                return Ok(());
            }
            sleep(Duration::from_millis(2));
        }
        Err(ErrorKind::TimedOut.into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The watcher goes first: once the server is reaped, its process id may be another's.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A shell that cleans up when its standard input ends, as it does when this process dies.
fn watch(pid: u32, folder: &Path) -> Child {
    Command::new("sh")
        .args(["-c", "read _; kill -9 \"$0\"; rm -rf \"$1\""])
        .arg(pid.to_string())
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh is installed")
}

/// The process id of the Redis on this port, from `PING` and `INFO` in plain bytes.
fn answering_pid(port: u16) -> io::Result<u32> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\nINFO server\r\n")?;
    let mut lines = BufReader::new(stream).lines();
    if lines.next().transpose()?.as_deref() != Some("+PONG") {
        return Err(ErrorKind::InvalidData.into());
    }
    for field in lines {
        if let Some(pid) = field?.strip_prefix("process_id:") {
            return pid.parse().map_err(|_| ErrorKind::InvalidData.into());
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}
