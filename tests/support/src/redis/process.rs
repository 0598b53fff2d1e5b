//! A server's process: its start, the check that it is ours, and its end.

use crate::daemon::Daemon;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The bound for a start.
pub(super) const START: Duration = Duration::from_secs(10);
const MISSING: &str = "these tests need `redis-server` on the PATH: \
    `apt-get install redis-server`, or `brew install redis`";

#[derive(Debug)]
pub(super) struct Running(Daemon);

impl Running {
    pub(super) fn spawn(command: &mut Command, folder: &Path) -> Self {
        Self(Daemon::spawn(command, folder, MISSING))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.process.id()
    }

    /// Waits until this process, and not another one, answers `PING` on the port.
    pub(super) fn wait_until_it_answers(&mut self, port: u16) -> io::Result<()> {
        let end = Instant::now() + START;
        while Instant::now() < end {
            // A process that ends at once has most likely found its port taken. The caller tries another one.
            if self.0.process.try_wait()?.is_some() {
                return Err(ErrorKind::AddrInUse.into());
            }
            if answering_pid(port).is_ok_and(|pid| pid == self.id()) {
                return Ok(());
            }
            sleep(Duration::from_millis(2));
        }
        Err(ErrorKind::TimedOut.into())
    }
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
