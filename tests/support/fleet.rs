//! Other processes that use the library: killed, stopped, or with clocks of their own.
//!
//! A child is this very test binary, told by its environment to serve commands from its standard
//! input. A test file that starts one has a test of the name [`CHILD`] that calls [`serve`].

use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::HashMap,
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};
use tokio::task::JoinSet;
use tower_semaphore::{Acquire, AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// The name of the ignored test that is a child's whole life.
pub(crate) const CHILD: &str = "a_process_of_the_fleet";

const URL: &str = "FLEET_URL";
const LEASE: &str = "FLEET_LEASE_MS";
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
        writeln!(self.input, "{command}").expect("the child reads");
        self.answer()
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

    /// Whether a permit is lost.
    pub(crate) fn is_lost(&mut self, name: &str) -> bool {
        self.ask(&format!("lost {name}")) == "true"
    }

    /// The child's own wall clock, in seconds.
    pub(crate) fn clock(&mut self) -> u64 {
        self.ask("clock").parse().expect("it is a number")
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
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let lease = env::var(LEASE)
            .expect("a parent sets it")
            .parse()
            .expect("it is a number");
        let store = RedisSemaphore::builder()
            .lease(Duration::from_millis(lease))
            .connect(env::var(URL).expect("a parent sets it"))
            .await
            .expect("the server is there");
        say("ready");
        let mut permits = HashMap::new();
        let mut contenders = JoinSet::new();
        // Blocking reads leave one of the runtime's threads to the keeper.
        for line in std::io::stdin().lines() {
            let line = line.expect("the parent writes text");
            say(&obey(&store, &mut permits, &mut contenders, &line).await);
        }
    });
}

fn say(answer: &str) {
    println!("{MARK}{answer}");
    std::io::stdout().flush().expect("the parent reads");
}

async fn contend(name: String, acquire: Acquire, hold: Duration) -> (String, u64) {
    let permit = acquire.await.expect("it is granted in time");
    tokio::time::sleep(hold).await;
    let token = permit.token();
    permit.release().await;
    (name, token)
}

async fn obey(
    store: &RedisSemaphore,
    permits: &mut HashMap<String, Permit>,
    contenders: &mut JoinSet<(String, u64)>,
    line: &str,
) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["acquire", name, key, limit] => {
            let limit = limit.parse().expect("a number");
            let claim = Claim::new(key.to_owned()).with_limit(limit);
            match store.acquire(claim).await {
                Ok(permit) => {
                    let token = permit.token().to_string();
                    permits.insert(name.to_owned(), permit);
                    token
                }
                Err(AcquireError::Full { .. }) => "full".to_owned(),
                Err(error) => format!("{error:?}"),
            }
        }
        ["contend", name, key, limit, hold] => {
            let claim = Claim::new(key.to_owned()).with_limit(limit.parse().expect("a number"));
            let mut acquire = store.acquire(claim.with_wait(Duration::from_secs(60)));
            let hold = Duration::from_millis(hold.parse().expect("a number"));
            // It asks here, not when its task comes to run, so that claims keep their order.
            let asked = futures_util::poll!(&mut acquire);
            assert!(asked.is_pending(), "nobody answers at once");
            contenders.spawn(contend(name.to_owned(), acquire, hold));
            "started".to_owned()
        }
        ["contended"] => {
            let mut granted = Vec::new();
            while let Some(one) = contenders.join_next().await {
                granted.push(one.expect("it did not panic"));
            }
            granted.sort_by_key(|(_, token)| *token);
            let pairs = granted
                .iter()
                .map(|(name, token)| format!("{name}={token}"));
            pairs.collect::<Vec<_>>().join(" ")
        }
        ["release", name] => {
            let permit = permits.remove(name).expect("it was acquired");
            permit.release().await.to_string()
        }
        ["lost", name] => permits[name].is_lost().to_string(),
        ["clock"] => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.expect("it is after 1970").as_secs().to_string()
        }
        _ => panic!("unknown command: {line}"),
    }
}
