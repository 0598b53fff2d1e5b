//! One deadline for a claim, however many calls it needs.

use redis::{
    Arg, Cmd, Pipeline, RedisFuture, Script, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    collections::VecDeque,
    future::pending,
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use testing::{redis::RedisServer, rig::warm};
use tokio::time::{Instant, sleep};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

const TIMEOUT: Duration = Duration::from_secs(3);
const BUDGET: Duration = Duration::from_secs(6);
/// Nearly as long as a call may take.
const LATE: Duration = Duration::from_millis(2_700);
/// For a busy machine. A second budget takes at least twice as long.
const SLACK: Duration = Duration::from_secs(1);

/// What happens to a call.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    AnsweredLate,
    /// It runs, and its connection breaks late.
    Broken,
    /// It does not run.
    Lost,
}

/// What happens to the next acquires and releases. The others are answered.
#[derive(Default)]
struct Plan {
    /// The hash of the script that acquires: it is called first.
    acquire: Option<String>,
    acquires: VecDeque<Fate>,
    releases: VecDeque<Fate>,
    /// From when on.
    from: Option<Instant>,
}

impl Plan {
    fn fate(&mut self, command: &Cmd) -> Fate {
        let args = command.args_iter().filter_map(|arg| match arg {
            Arg::Simple(arg) => Some(arg),
            _ => None,
        });
        let args: Vec<&[u8]> = args.collect();
        // Refreshes name no queue.
        if !args.iter().any(|arg| arg.ends_with(b":queue")) {
            return Fate::Answered;
        }
        let script = hash(&args);
        let acquire = self.acquire.get_or_insert_with(|| script.clone());
        let is_planned = self.from.is_some_and(|from| Instant::now() >= from);
        let fates = match script == *acquire {
            true => &mut self.acquires,
            false => &mut self.releases,
        };
        let fate = is_planned.then(|| fates.pop_front()).flatten();
        fate.unwrap_or(Fate::Answered)
    }
}

/// That of the script which is run.
fn hash(args: &[&[u8]]) -> String {
    let script = String::from_utf8_lossy(args[1]);
    match args[0] == b"EVAL" {
        true => Script::new(&script).get_hash().to_owned(),
        false => script.into_owned(),
    }
}

/// A connection whose calls have a plan.
#[derive(Clone)]
struct Planned {
    inner: MultiplexedConnection,
    plan: Arc<Mutex<Plan>>,
}

impl Planned {
    async fn connect(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("the address is valid");
        let inner = client.get_multiplexed_async_connection().await;
        Self {
            inner: inner.expect("it connects"),
            plan: Arc::default(),
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("no panic")
    }

    fn set(
        &self,
        acquires: impl Into<VecDeque<Fate>>,
        releases: impl Into<VecDeque<Fate>>,
        from: Instant,
    ) {
        let mut plan = self.plan();
        (plan.acquires, plan.releases) = (acquires.into(), releases.into());
        plan.from = Some(from);
    }

    /// A store that has used both scripts.
    async fn store(&self) -> RedisSemaphore {
        let builder = RedisSemaphore::builder().timeout(TIMEOUT);
        let store = builder.build_on(self.clone()).expect("right settings");
        warm(&store).await;
        store
    }
}

impl ConnectionLike for Planned {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let fate = self.plan().fate(command);
        Box::pin(async move {
            if matches!(fate, Fate::Lost) {
                return pending().await;
            }
            let answer = self.inner.req_packed_command(command).await;
            if !matches!(fate, Fate::Answered) {
                sleep(LATE).await;
            }
            match fate {
                Fate::Broken => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                _ => answer,
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(pending())
    }

    fn get_db(&self) -> i64 {
        0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_try_late_in_a_claims_budget_has_the_rest_of_it_and_no_second_one() {
    let server = RedisServer::start();
    let connection = Planned::connect(&server).await;
    let store = connection.store().await;
    let claim = || store.acquire(Claim::new("ann").with_limit(1));
    let permit = claim().await.expect("there is room");
    // The release travels before the claim each time, and is answered when nearly two timeouts have passed.
    let releases = [Fate::Lost, Fate::AnsweredLate];
    connection.set([Fate::Answered, Fate::Lost], releases, Instant::now());
    let start = Instant::now();
    drop(permit);
    let answer = claim().await;
    let took = start.elapsed();
    assert!(matches!(answer, Err(AcquireError::Store(_))), "{answer:?}");
    assert!(connection.plan().acquires.is_empty(), "it tries twice");
    assert!(took < BUDGET + SLACK, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_poll_of_a_waiter_ends_a_budget_after_its_wait_however_late_it_is_sent() {
    const WAIT: Duration = Duration::from_secs(2);
    let server = RedisServer::start();
    let connection = Planned::connect(&server).await;
    let store = connection.store().await;
    let claim = Claim::new("ann").with_limit(1);
    let _holder = store.acquire(claim.clone()).await.expect("there is room");
    let start = Instant::now();
    // The second one has no answer until nearly two timeouts have passed.
    let acquires = [Fate::Broken, Fate::Lost, Fate::Lost];
    // The head of the queue polls so often that it does so before the end.
    connection.set(acquires, [], start + WAIT / 2);
    let answer = store.acquire(claim.with_wait(WAIT)).await;
    let took = start.elapsed();
    assert!(matches!(answer, Err(AcquireError::Store(_))), "{answer:?}");
    assert!(connection.plan().acquires.is_empty(), "it polls once more");
    assert!(took < WAIT + BUDGET + SLACK, "{took:?}");
}
