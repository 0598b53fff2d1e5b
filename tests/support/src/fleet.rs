//! Other processes that use the library, which a test can kill, stop, or run with separate clocks.
//!
//! A child is the same test binary, with environment variables that make it serve commands from its standard input. A
//! test program that starts a child has a test named [`CHILD`] in its root, which calls [`serve`].

pub mod fenced;
mod locks;
mod served;
pub mod witness;

use crate::child::child;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::Duration,
};

/// The name of the ignored test that runs as a child.
pub const CHILD: &str = "a_process_of_the_fleet";

const URL: &str = "FLEET_URL";
const LEASE: &str = "FLEET_LEASE_MS";
/// How often a child retries a claim when the store fails.
const RETRIES: usize = 5;
/// Marks answers within the output of the test harness.
const MARK: &str = "fleet: ";

/// Another process with a separate store. Killed when dropped.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process whose store is at `url`, with this lease.
    pub fn start(url: &str, lease: Duration) -> Self {
        Self::with(url, lease, &[])
    }

    /// Starts a process with more environment variables.
    pub fn with(url: &str, lease: Duration, environment: &[(&str, String)]) -> Self {
        // The test is in the root, so the path of its module is empty.
        let mut child = child("", CHILD)
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
    fn call(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").expect("the child reads");
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut output = String::new();
        loop {
            output.clear();
            let length = self
                .output
                .read_line(&mut output)
                .expect("the child writes");
            assert!(length > 0, "the child is gone");
            if let Some((_, answer)) = output.trim_end().split_once(MARK) {
                return answer.to_owned();
            }
        }
    }

    /// Acquires a permit and stores it under `name`. Returns its token, or `None` if the key is full or paused.
    pub fn acquire(&mut self, name: &str, key: &str, limit: u32) -> Option<u64> {
        match self.call(&format!("acquire {name} {key} {limit}")).as_str() {
            "full" => None,
            token => Some(token.parse().unwrap_or_else(|_| panic!("{token}"))),
        }
    }

    /// Pauses the key of a permit.
    pub fn pause(&mut self, name: &str, time: Duration) {
        let answer = self.call(&format!("pause {name} {}", time.as_millis()));
        assert_eq!(answer, "paused");
    }

    /// Releases a permit. Returns true if it was still held.
    pub fn release(&mut self, name: &str) -> bool {
        self.call(&format!("release {name}")) == "true"
    }

    /// Starts a claim that waits, optionally in a flow, and then releases its permit. The child reports the grants in
    /// [`contended`](Self::contended).
    pub fn contend(&mut self, flow: Option<&str>, name: &str, key: &str, limit: u32) {
        let flow = flow.map(|flow| format!(" {flow}")).unwrap_or_default();
        let command = format!("contend {name} {key} {limit}{flow}");
        assert_eq!(self.call(&command), "started");
    }

    /// Waits until all contenders have released their permits. Returns their names and tokens in the order of their
    /// grants.
    pub fn contended(&mut self) -> Vec<(String, u64)> {
        let answer = self.call("contended");
        let pairs = answer.split_whitespace().map(|pair| {
            let (name, token) = pair.split_once('=').expect("name=token");
            (name.to_owned(), token.parse().expect("a number"))
        });
        pairs.collect()
    }

    /// Acquires a lock and stores it under `name`. Returns its token, or `None` after `timeout`.
    pub fn lock(&mut self, name: &str, key: &str, timeout: Duration) -> Option<u64> {
        let timeout = timeout.as_millis();
        match self.call(&format!("lock {name} {key} {timeout}")).as_str() {
            "timed out" => None,
            token => Some(token.parse().unwrap_or_else(|_| panic!("{token}"))),
        }
    }

    /// Releases a lock. Returns true if it was still held.
    pub fn unlock(&mut self, name: &str) -> bool {
        self.call(&format!("unlock {name}")) == "true"
    }

    /// Writes to a [`FencedFile`](fenced::FencedFile) under the token of a lock, even if the lock is no longer held.
    /// Returns true if the file accepted the entry.
    pub fn write(&mut self, name: &str, file: &Path) -> bool {
        self.call(&format!("write {name} {}", file.display())) == "true"
    }

    /// Starts to take a lock repeatedly, and to log each grant to a [`Witness`](witness::Witness).
    pub fn lock_repeatedly(&mut self, key: &str, witness: &witness::Witness) {
        let file = witness.path().display();
        assert_eq!(self.call(&format!("repeat {key} {file}")), "started");
    }

    /// Returns true if a permit is lost.
    pub fn is_lost(&mut self, name: &str) -> bool {
        self.call(&format!("lost {name}")) == "true"
    }

    /// The child's wall clock, in seconds.
    pub fn clock(&mut self) -> u64 {
        self.call("clock").parse().expect("it is a number")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it is our child");
    }

    /// Stops the process (SIGSTOP). Its connections stay open, and none of its code runs.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a stopped process (SIGCONT).
    pub fn cont(&self) {
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

/// Runs as a child: connects, answers commands, and ends when its standard input ends.
pub fn serve() {
    served::run();
}
