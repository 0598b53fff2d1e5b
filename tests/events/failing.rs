//! A server's risks and periods of failing claims are each logged twice: when they begin and when they end.
//!
//! Promises: P20, P25.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{
    AcquireError, Claim, Permit, RedisSemaphore, Semaphore,
    redis::{Builder, WhenUnavailable},
};
use tracing::subscriber::DefaultGuard;

const BOUND: Duration = Duration::from_secs(20);
const CLAIMS: u64 = 30;

/// The warnings of this thread. A test has one thread, which carries its claims.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics with it").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Warnings {
    fn listen() -> (Self, DefaultGuard) {
        crate::log::listen();
        let warnings = Self::default();
        let writer = warnings.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (warnings, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self) -> Vec<String> {
        let text = self.0.lock().expect("no test panics with it").clone();
        let text = String::from_utf8(text).expect("it is text");
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Asserts that the store has begun to fail because of this cause, and that nothing else was logged.
    fn assert_begun(&self, cause: &str) {
        let lines = self.lines();
        let is_it = |line: &String| {
            line.starts_with("WARN tower_semaphore: the store fails error=") && line.contains(cause)
        };
        assert!(lines.len() == 1 && is_it(&lines[0]), "{cause}: {lines:#?}");
    }

    /// Asserts that the end is logged after a while without failures, and nothing else.
    async fn assert_over(&self, store: &RedisSemaphore) {
        let before = self.lines().len();
        eventually("the end is told", BOUND, async || {
            assert!(store.acquire(claim(CLAIMS)).await.is_ok());
            self.lines().len() > before
        })
        .await;
        let end = ["WARN tower_semaphore: the store works again"];
        assert_eq!(self.lines()[before..], end);
    }
}

/// Short, because a period of failures ends after one lease without a failure.
const LEASE: Duration = Duration::from_secs(3);

fn patient() -> Builder {
    RedisSemaphore::builder().timeout(LEASE / 3).lease(LEASE)
}

fn claim(key: u64) -> Claim {
    Claim::new(key).with_limit(1)
}

fn assert_fails(answer: &Result<Permit, AcquireError>) {
    let is_failure = matches!(answer, Err(AcquireError::Store { .. }));
    assert!(is_failure, "{answer:?}");
}

/// Other claims than those of the later successes.
async fn assert_all_fail(store: &RedisSemaphore) {
    for key in 0..CLAIMS {
        let wait = Duration::from_millis(key % 2);
        assert_fails(&store.acquire(claim(key).with_wait(wait)).await);
    }
}

async fn assert_works(store: &RedisSemaphore) {
    eventually("claims succeed", BOUND, async || {
        store.acquire(claim(CLAIMS)).await.is_ok()
    })
    .await;
    for key in 0..CLAIMS {
        assert!(store.acquire(claim(key)).await.is_ok());
    }
}

async fn ok(raw: &mut Raw, command: &str) {
    let command: Vec<_> = command.split(' ').collect();
    assert_eq!(raw.cmd(&command).await.text(), "OK", "{command:?}");
}

async fn started() -> (RedisServer, Raw) {
    let server = RedisServer::start();
    let raw = Raw::connect(server.port()).await;
    (server, raw)
}

async fn connected(server: &RedisServer) -> RedisSemaphore {
    let store = patient().connect(server.url()).await;
    store.expect("it connects")
}

async fn kill_connections(raw: &mut Raw) {
    raw.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
}

/// A fault and its repair are each logged once. Open connections may not notice the fault.
async fn is_told_twice(
    store: &RedisSemaphore,
    raw: &mut Raw,
    (breaks, cause, mends): (&str, &str, &str),
    is_noticed: bool,
) {
    assert_works(store).await;
    let (warnings, _guard) = Warnings::listen();
    ok(raw, breaks).await;
    if !is_noticed {
        assert_works(store).await;
        assert!(warnings.lines().is_empty(), "connections go on");
        kill_connections(raw).await;
    }
    assert_all_fail(store).await;
    warnings.assert_begun(cause);
    ok(raw, mends).await;
    assert_works(store).await;
    warnings.assert_over(store).await;
}

#[tokio::test]
async fn a_risk_is_a_warning_when_the_store_connects() {
    let (warnings, _guard) = Warnings::listen();
    let server = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lfu"]);
    let connected = RedisSemaphore::connect(server.url()).await;
    connected.expect("it connects");
    let lines = warnings.lines();
    assert!(
        lines.iter().any(|line| line.contains("allkeys-lfu")),
        "{lines:?}"
    );
}

/// The server answers a short command differently from a long one.
#[tokio::test]
async fn a_password_that_is_set_is_told_once_and_its_removal_too() {
    let (server, mut raw) = started().await;
    let store = connected(&server).await;
    let change = (
        "CONFIG SET requirepass new",
        "uthentica",
        "CONFIG SET requirepass ",
    );
    is_told_twice(&store, &mut raw, change, false).await;
}

const ANN: &str = "ACL SETUSER ann on >old ~* &* +@all";

/// A store of a user that the server knows.
async fn of_a_user(server: &RedisServer, raw: &mut Raw, builder: Builder) -> RedisSemaphore {
    ok(raw, ANN).await;
    let store = builder.connect(server.url_of("ann:old")).await;
    store.expect("it connects")
}

#[tokio::test]
async fn a_password_that_is_changed_is_told_once_and_its_return_too() {
    let (server, mut raw) = started().await;
    let store = of_a_user(&server, &mut raw, patient()).await;
    let (breaks, mends) = ("ACL SETUSER ann resetpass >new", "ACL SETUSER ann >old");
    is_told_twice(&store, &mut raw, (breaks, "assword", mends), false).await;
}

/// No policy admits claims in a fault that a person must repair.
#[tokio::test]
async fn a_right_that_is_taken_from_a_connection_is_told_once_and_its_return_too() {
    for rights in ["-eval -evalsha", "resetkeys ~other*"] {
        let (server, mut raw) = started().await;
        let admits = patient().when_unavailable(WhenUnavailable::Admit);
        let store = of_a_user(&server, &mut raw, admits).await;
        let breaks = format!("ACL SETUSER ann {rights}");
        let change = (&*breaks, "permissions to", "ACL SETUSER ann +@all ~*");
        is_told_twice(&store, &mut raw, change, true).await;
    }
}

#[tokio::test]
async fn a_key_that_fails_by_turns_with_others_is_told_once() {
    let (server, mut raw) = started().await;
    let store = connected(&server).await;
    assert!(store.acquire(claim(0)).await.is_ok());
    let (warnings, _guard) = Warnings::listen();
    let held = "semaphore:2:{concurrency:bad}:held";
    ok(&mut raw, &format!("SET {held} none")).await;
    let bad = || store.acquire(Claim::new("bad").with_limit(1));
    for key in 0..CLAIMS {
        assert_fails(&bad().await);
        assert!(store.acquire(claim(key)).await.is_ok());
    }
    warnings.assert_begun("WRONGTYPE");
    raw.cmd(&["DEL", held]).await;
    assert!(bad().await.is_ok());
    warnings.assert_over(&store).await;
}

/// Only claims that wait need the missing command.
#[tokio::test]
async fn waiting_claims_that_fail_by_turns_with_others_are_told_once() {
    let (server, mut raw) = started().await;
    let store = connected(&server).await;
    let (warnings, _guard) = Warnings::listen();
    ok(&mut raw, "ACL SETUSER default -zrange").await;
    for key in 0..CLAIMS {
        let held = store.acquire(claim(key)).await.expect("it is free");
        let waits = claim(key).with_wait(Duration::from_millis(20));
        assert_fails(&store.acquire(waits).await);
        drop(held);
    }
    warnings.assert_begun("can't run this command");
    ok(&mut raw, "ACL SETUSER default +zrange").await;
    warnings.assert_over(&store).await;
}

/// Another thread may log the beginning of the outage.
#[tokio::test]
async fn an_outage_that_turns_into_a_mistake_is_told_as_one_too() {
    let (mut server, mut raw) = started().await;
    let store = of_a_user(&server, &mut raw, patient()).await;
    assert_works(&store).await;
    let (warnings, _guard) = Warnings::listen();
    server.kill();
    let begun = Instant::now();
    while begun.elapsed() < LEASE {
        assert!(store.acquire(claim(0)).await.is_err());
        sleep(Duration::from_millis(10)).await;
    }
    // The restarted server no longer knows the user.
    server.restart();
    eventually("a mistake is told", BOUND, async || {
        assert!(store.acquire(claim(0)).await.is_err());
        let lines = warnings.lines();
        lines.iter().any(|line| line.contains("WRONGPASS"))
    })
    .await;
    let told = warnings.lines();
    assert_all_fail(&store).await;
    assert_eq!(warnings.lines(), told);
    let mut raw = Raw::connect(server.port()).await;
    ok(&mut raw, ANN).await;
    assert_works(&store).await;
    warnings.assert_over(&store).await;
}

#[tokio::test]
async fn paused_time_is_told_once() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    // Calls succeed until the thread waits, so some claims may succeed.
    let (warnings, _guard) = Warnings::listen();
    tokio::time::pause();
    let mut failed = 0;
    while failed < 1 {
        failed += usize::from(store.acquire(claim(0)).await.is_err());
    }
    warnings.assert_begun("tokio::time::pause");
}
