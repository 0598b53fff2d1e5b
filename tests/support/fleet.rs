//! Other processes that use the library: killed, stopped, or with clocks of their own.
//!
//! A child is this very test binary, told by its environment to serve commands from its standard
//! input. A test file that starts one has a test of the name [`CHILD`] that calls [`serve`].

mod child;
pub(crate) mod fenced;
mod locks;
pub(crate) mod witness;

use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// The name of the ignored test that is a child's whole life.
pub(crate) const CHILD: &str = "a_process_of_the_fleet";

const URL: &str = "FLEET_URL";
const LEASE: &str = "FLEET_LEASE_MS";
/// How often a child claims again at most, when the store fails.
const AGAIN: usize = 5;
/// Precedes every answer, among what the test harness prints.
const MARK: &str = "fleet: ";

/// Another process with a store of its own. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one whose store is at `url`, with this lease.
    pub(crate) fn start(url: &str, lease: Duration) -> Self {
        Self::with(url, lease, &[])
    }

    /// Starts one with more in its environment.
    pub(crate) fn with(url: &str, lease: Duration, environment: &[(&str, String)]) -> Self {
        let mut child = Command::new(env::current_exe().expect("a test is a program"))
            .args([
                "--exact",
                CHILD,
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(URL, url)
            .env(LEASE, lease.as_millis().to_string())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut process = Self {
            child,
            input,
            output,
        };
        assert_eq!(process.answer(), "ready");
        process
    }

    /// Sends a command and waits for the answer.
    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("the child reads");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.output.read_line(&mut line).expect("the child writes");
            assert!(length > 0, "the child is gone");
            if let Some((_, answer)) = line.trim_end().split_once(MARK) {
                return answer.to_owned();
            }
        }
    }

    /// Asks for a permit and keeps it under `name`. Its token, if it was granted.
    pub(crate) fn acquire(&mut self, name: &str, key: &str, limit: u32) -> Option<u64> {
        match self.ask(&format!("acquire {name} {key} {limit}")).as_str() {
            "full" => None,
            token => Some(token.parse().unwrap_or_else(|_| panic!("{token}"))),
        }
    }

    /// Gives a permit back: whether it was still held.
    pub(crate) fn release(&mut self, name: &str) -> bool {
        self.ask(&format!("release {name}")) == "true"
    }

    /// Starts a claim that waits, holds its permit for `hold` and gives it back. Its ticket of
    /// arrival is the server's to know; the child reports when it was granted, see
    /// [`contended`](Self::contended).
    pub(crate) fn contend(&mut self, name: &str, key: &str, limit: u32, hold: Duration) {
        let hold = hold.as_millis();
        assert_eq!(
            self.ask(&format!("contend {name} {key} {limit} {hold}")),
            "started"
        );
    }

    /// The names of the contenders with their tokens, in the order in which they were granted,
    /// once all have given their permits back.
    pub(crate) fn contended(&mut self) -> Vec<(String, u64)> {
        let answer = self.ask("contended");
        let pairs = answer.split_whitespace().map(|pair| {
            let (name, token) = pair.split_once('=').expect("name=token");
            (name.to_owned(), token.parse().expect("a number"))
        });
        pairs.collect()
    }

    /// Asks for a lock and keeps it under `name`. Its token, if it came within `timeout`.
    pub(crate) fn lock(&mut self, name: &str, key: &str, timeout: Duration) -> Option<u64> {
        self.begin_lock(name, key, timeout);
        self.locked()
    }

    /// The first half of [`lock`](Self::lock): asks, and waits for no answer.
    pub(crate) fn begin_lock(&mut self, name: &str, key: &str, timeout: Duration) {
        self.tell(&format!("lock {name} {key} {}", timeout.as_millis()));
    }

    /// The second half of [`lock`](Self::lock).
    pub(crate) fn locked(&mut self) -> Option<u64> {
        match self.answer().as_str() {
            "timed out" => None,
            token => Some(token.parse().unwrap_or_else(|_| panic!("{token}"))),
        }
    }

    /// Frees a lock: whether it was still held.
    pub(crate) fn unlock(&mut self, name: &str) -> bool {
        self.ask(&format!("unlock {name}")) == "true"
    }

    /// Writes to a [`FencedFile`](fenced::FencedFile) under the token of a lock, whether or not
    /// it is still held: whether the file took it.
    pub(crate) fn write(&mut self, name: &str, file: &Path) -> bool {
        self.ask(&format!("write {name} {}", file.display())) == "true"
    }

    /// Starts to take a lock again and again, with each hold told to a
    /// [`Witness`](witness::Witness).
    pub(crate) fn take_turns(&mut self, key: &str, witness: &witness::Witness) {
        let file = witness.path().display();
        assert_eq!(self.ask(&format!("turns {key} {file}")), "started");
    }

    /// Whether a permit is lost.
    pub(crate) fn is_lost(&mut self, name: &str) -> bool {
        self.ask(&format!("lost {name}")) == "true"
    }

    /// The child's own wall clock, in seconds.
    pub(crate) fn clock(&mut self) -> u64 {
        self.ask("clock").parse().expect("it is a number")
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it is our child");
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill();
        }
    }
}

/// A child's life: connects, answers commands, and ends with its standard input.
pub(crate) fn serve() {
    child::live();
}
