//! Real Redis servers, each private to the test that starts it.

mod process;

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use self::process::{Running, START};

const TRIES: usize = 10;

/// A `redis-server` process on a port of its own, with an empty data set in a folder of its own.
///
/// The server ends when the handle is dropped, and also when the test's process is killed.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    folder: TempDir,
    running: Option<Running>,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When `redis-server` is not installed, or does not answer within ten seconds.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more arguments: `&["--maxmemory", "1mb"]`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start), or when the server refuses the arguments.
    pub fn with(args: &[&str]) -> Self {
        Self::with_environment(args, &[])
    }

    /// Starts a server with more arguments, and with more variables in its environment.
    ///
    /// # Panics
    ///
    /// As [`with`](Self::with).
    pub fn with_environment(args: &[&str], environment: &[(&str, String)]) -> Self {
        let own = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
        let mut server = Self {
            port: 0,
            args: args.iter().map(ToString::to_string).collect(),
            environment: environment.iter().map(own).collect(),
            folder: TempDir::new().expect("a temporary folder can be made"),
            running: None,
        };
        // Another process may take the port between its choice and the start.
        let started = (0..TRIES).any(|_| {
            server.port = free_port();
            server.launch().is_ok()
        });
        assert!(started, "no redis-server has started: {}", server.log());
        server
    }

    /// `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port, which stays the same across [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server.
    ///
    /// # Panics
    ///
    /// When it was killed and not restarted.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("the server runs").server.id()
    }

    /// Kills the server (SIGKILL): its data are lost and its port refuses connections.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Stops the server (SIGSTOP): connections stay open and nothing answers.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a stopped server (SIGCONT).
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the server and starts an empty one on the same port.
    ///
    /// # Panics
    ///
    /// When the new one does not answer within ten seconds.
    pub fn restart(&mut self) {
        self.kill();
        let end = Instant::now() + START;
        while self.launch().is_err() {
            assert!(Instant::now() < end, "no restart: {}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// What the server has printed since its last start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process id is an i32");
        let pid = Pid::from_raw(pid).expect("a process id is not zero");
        kill_process(pid, signal).expect("our own child can be signalled");
    }

    fn launch(&mut self) -> io::Result<()> {
        let log = File::create(self.folder.path().join("log"))?;
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--dir", &self.folder.path().to_string_lossy()])
            .args(&self.args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        let mut running = Running::spawn(&mut command, self.folder.path());
        running.wait_until_it_answers(self.port)?;
        self.running = Some(running);
        Ok(())
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| socket.local_addr())
        .expect("a port is free")
        .port()
}
