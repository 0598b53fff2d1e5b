//! A fresh process that takes permits and holds them, so that its memory grows only by them.
//!
//! The child is this benchmark itself, started with a load in its environment.

use std::{
    env,
    io::{self, BufRead, BufReader},
    process::{self, Child, ChildStdout, Command, Stdio},
    time::Duration,
};
use testing::bench::proc::resident;
use tokio::task::JoinSet;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LOAD: &str = "STREAMS_LOAD";

/// The default lease.
pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// The number of tasks that take permits at the same time.
const TASKS: usize = 32;

/// The permits that a process holds.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) url: String,
    pub(crate) permits: usize,
    pub(crate) keys: usize,
}

/// The load that this process must hold, if it is such a child.
pub(crate) fn load_of_child() -> Option<Load> {
    let load = env::var(LOAD).ok()?;
    let mut words = load.split(' ');
    let mut word = || words.next().expect("the parent says all");
    let number = |word: &str| word.parse().expect("it is a number");
    Some(Load {
        url: word().to_owned(),
        permits: number(word()),
        keys: number(word()),
    })
}

/// Runs as a child: prints its memory, acquires all permits, prints `held`, and holds them until its input ends. Then
/// prints how many of them were lost.
pub(crate) async fn hold_permits(load: Load) {
    let store = RedisSemaphore::builder()
        .lease(LEASE)
        .connect(load.url.as_str())
        .await;
    let store = store.expect("the server is there");
    // One permit first, so that the store has its connections before its memory is read.
    drop(take(&store, 0, 1).await);
    println!("{}", resident(process::id()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, load) = (store.clone(), load.clone());
        tasks.spawn(async move {
            let mut permits = Vec::new();
            for number in (task..load.permits).step_by(TASKS) {
                permits.push(take(&store, number % load.keys, u32::MAX).await);
            }
            permits
        });
    }
    let permits = tasks.join_all().await;
    println!("held");
    // The runtime's other threads keep the permits alive while this one blocks.
    let _ = io::stdin().read_line(&mut String::new());
    let lost = permits
        .iter()
        .flatten()
        .filter(|permit| permit.is_lost())
        .count();
    println!("{lost}");
    process::exit(0);
}

async fn take(store: &RedisSemaphore, key: usize, limit: u32) -> Permit {
    let claim = Claim::new(format!("account-{key}")).with_limit(limit);
    store.acquire(claim).await.expect("there is room")
}

/// A child as its parent sees it.
pub(crate) struct Holder {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Its memory before it took the permits.
    pub(crate) before: u64,
}

impl Holder {
    /// Starts a child and waits until it holds everything.
    pub(crate) fn start(load: &Load) -> Self {
        let Load { url, permits, keys } = load;
        let mut child = Command::new(env::current_exe().expect("a benchmark is a program"))
            .env(LOAD, format!("{url} {permits} {keys}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut holder = Self {
            child,
            output,
            before: 0,
        };
        holder.before = holder.read().parse().expect("it is a number");
        assert_eq!(holder.read(), "held");
        holder
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the child. Returns how many of its permits were lost.
    pub(crate) fn end(mut self) -> usize {
        drop(self.child.stdin.take());
        let lost = self.read().parse().expect("it is a number");
        self.child.wait().expect("it is our child");
        lost
    }

    fn read(&mut self) -> String {
        let mut output = String::new();
        self.output
            .read_line(&mut output)
            .expect("the child writes");
        output.trim_end().to_owned()
    }
}
