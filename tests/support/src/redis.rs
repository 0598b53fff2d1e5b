//! Real Redis servers, each private to the test that starts it.

pub mod chosen;
mod cluster;
mod process;
mod replicated;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
pub mod secure;
mod sentinels;

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use self::cluster::{Cluster, slot};
use self::process::{Running, START};
pub use self::replicated::Replicated;
pub use self::sentinels::{Sentinels, sentinel, sentinel_with};
use crate::port::Port;
use crate::resp::Raw;
use crate::wait::eventually;

/// The most attempts to start a server, each on another port.
const TRIES: usize = 20;

/// A placeholder in the arguments for a free port.
pub const ANY_PORT: &str = "any-port";

/// The key of the live processes of stores.
pub const PROCESSES: &str = "semaphore:2:processes";

/// Waits until `count` processes are registered in Redis, and each of them knows this number.
///
/// # Panics
///
/// If that takes longer than 20 seconds.
pub async fn until_processes_know_each_other(raw: &mut Raw, count: usize) {
    const BOUND: Duration = Duration::from_secs(20);
    eventually("all are alive", BOUND, async || {
        raw.zcard(PROCESSES).await == count
    })
    .await;
    // The score is the time until which a process counts as alive. Each process learns the number from the answer to
    // its next call.
    let before = raw.zmembers(PROCESSES).await;
    eventually("each has called again", BOUND, async || {
        let now = raw.zmembers(PROCESSES).await;
        let is_later = |(id, end): &(Vec<u8>, f64)| {
            now.iter().any(|(other, later)| other == id && later > end)
        };
        before.iter().all(is_later)
    })
    .await;
}

/// A `redis-server` process on a separate port, with an empty data set in a separate folder.
///
/// The server ends when the handle is dropped, and also when the test's process is killed.
#[derive(Debug)]
pub struct RedisServer {
    port: Port,
    /// Used only if the arguments have [`ANY_PORT`].
    tls_port: Port,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    /// True if the server has a configuration file, which it may rewrite.
    is_configured: bool,
    folder: TempDir,
    running: Option<Running>,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If the server is not installed, or does not answer within ten seconds.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more arguments, such as `&["--maxmemory", "1mb"]`.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start), or if the server refuses the arguments.
    pub fn with(args: &[&str]) -> Self {
        Self::with_environment(args, &[])
    }

    /// Starts a server with more arguments and more environment variables.
    ///
    /// # Panics
    ///
    /// Like [`with`](Self::with).
    pub fn with_environment(args: &[&str], environment: &[(&str, String)]) -> Self {
        Self::launched(args, environment, None)
    }

    /// Starts a server with more arguments and a configuration file with this content.
    ///
    /// # Panics
    ///
    /// Like [`with`](Self::with).
    pub fn with_configuration(args: &[&str], content: &str) -> Self {
        Self::launched(args, &[], Some(content))
    }

    fn launched(args: &[&str], environment: &[(&str, String)], content: Option<&str>) -> Self {
        let owned = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
        let mut server = Self {
            port: Port::reserve(),
            tls_port: Port::reserve(),
            args: args.iter().map(ToString::to_string).collect(),
            environment: environment.iter().map(owned).collect(),
            is_configured: content.is_some(),
            folder: TempDir::new().expect("a temporary folder can be made"),
            running: None,
        };
        if let Some(content) = content {
            fs::write(server.configuration(), content).expect("the file is written");
        }
        // Another process may take a port between its reservation and the start.
        let started = (0..TRIES).any(|_| {
            let is_running = server.launch().is_ok();
            if !is_running {
                (server.port, server.tls_port) = (Port::reserve(), Port::reserve());
            }
            is_running
        });
        assert!(started, "no redis-server has started: {}", server.log());
        server
    }

    /// `redis://127.0.0.1:PORT/`, unless the environment has [`chosen`] another form.
    pub fn url(&self) -> String {
        chosen::url(self.client_port())
    }

    /// The URL with a user, as `NAME:PASSWORD`.
    pub fn url_of(&self, user: &str) -> String {
        self.url().replacen("//", &format!("//{user}@"), 1)
    }

    /// The port for clients and other servers. It is the TLS port if TLS is [`chosen`].
    pub fn client_port(&self) -> u16 {
        match chosen::has_tls() {
            true => self.tls_port.number,
            false => self.port.number,
        }
    }

    /// The plain port, which stays the same across [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The TLS port of a server whose arguments have `--tls-port` and [`ANY_PORT`].
    pub fn tls_port(&self) -> u16 {
        self.tls_port.number
    }

    /// The process id of the server.
    ///
    /// # Panics
    ///
    /// If the server was killed and not restarted.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("the server runs").id()
    }

    /// Kills the server (SIGKILL). Its data are lost, and its port refuses connections.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Stops the server (SIGSTOP). Connections stay open, and nothing answers.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a stopped server (SIGCONT).
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the server and starts it again on the same port. It is empty unless its arguments make it save its data.
    ///
    /// # Panics
    ///
    /// If the server does not answer within a minute. It may have much saved data to load.
    pub fn restart(&mut self) {
        self.kill();
        let end = Instant::now() + 6 * START;
        while self.launch().is_err() {
            assert!(Instant::now() < end, "no restart: {}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// The output of the server since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("redis.conf")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process id is an i32");
        let pid = Pid::from_raw(pid).expect("a process id is not zero");
        kill_process(pid, signal).expect("our own child can be signalled");
    }

    fn launch(&mut self) -> io::Result<()> {
        let log = File::create(self.folder.path().join("log"))?;
        let mut command = Command::new(chosen::binary());
        command
            .args(self.is_configured.then(|| self.configuration()))
            .args([
                "--port",
                &self.port.number.to_string(),
                "--bind",
                "127.0.0.1",
            ])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--dir", &self.folder.path().to_string_lossy()])
            .args(chosen::arguments().iter().map(|arg| self.resolved(arg)))
            .args(self.args.iter().map(|arg| self.resolved(arg)))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        let mut running = Running::spawn(&mut command, self.folder.path());
        running.wait_until_it_answers(self.port.number)?;
        self.running = Some(running);
        Ok(())
    }

    /// Replaces [`ANY_PORT`] by the TLS port.
    fn resolved(&self, argument: &str) -> String {
        match argument {
            ANY_PORT => self.tls_port.number.to_string(),
            argument => argument.to_owned(),
        }
    }
}
