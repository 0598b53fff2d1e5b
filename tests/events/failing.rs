//! A period of failing claims is logged once when it begins and once when it ends. A risk is logged when a store
//! connects.
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
/// The number of claims that a fault must fail, with the keys from 0 on. Claims that are repeated until the store works
/// have this number as their key.
const CLAIMS: u64 = 30;

/// The warnings that this thread logs. The whole test runs in one thread, and so do its claims.
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

    /// Waits until the end of the failures is logged, and asserts that nothing else is.
    async fn assert_over(&self, store: &RedisSemaphore) {
        let before = self.lines().len();
        eventually("the end is logged", BOUND, async || {
            assert!(store.acquire(claim(CLAIMS)).await.is_ok());
            self.lines().len() > before
        })
        .await;
        let end = ["WARN tower_semaphore: the store works again"];
        assert_eq!(self.lines()[before..], end);
    }
}

/// Short, because a period of failures ends only after one lease without a failure.
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

/// Makes claims for many keys, every other one with a wait, and asserts that all fail.
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

/// The command that causes a fault, a part of the error that is logged, and the command that repairs the fault.
type Fault<'a> = (&'a str, &'a str, &'a str);

/// Asserts that a fault and its repair are each logged once. `is_noticed`: open connections notice the fault. Otherwise
/// they are killed.
async fn assert_logged_twice(
    store: &RedisSemaphore,
    raw: &mut Raw,
    (breaks, cause, mends): Fault<'_>,
    is_noticed: bool,
) {
    assert_works(store).await;
    let (warnings, _guard) = Warnings::listen();
    ok(raw, breaks).await;
    if !is_noticed {
        assert_works(store).await;
        assert!(warnings.lines().is_empty(), "open connections work");
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

#[tokio::test]
async fn a_password_that_is_set_is_logged_once_and_so_is_its_removal() {
    let (server, mut raw) = started().await;
    let store = connected(&server).await;
    // The server answers a short command differently from a long one, so only a part of the word is the same.
    let fault = (
        "CONFIG SET requirepass new",
        "uthentica",
        "CONFIG SET requirepass ",
    );
    assert_logged_twice(&store, &mut raw, fault, false).await;
}

const ANN: &str = "ACL SETUSER ann on >old ~* &* +@all";

/// A store that logs in as the user `ann`.
async fn store_of_ann(server: &RedisServer, raw: &mut Raw, builder: Builder) -> RedisSemaphore {
    ok(raw, ANN).await;
    let store = builder.connect(server.url_of("ann:old")).await;
    store.expect("it connects")
}

#[tokio::test]
async fn a_password_that_is_changed_is_logged_once_and_so_is_its_return() {
    let (server, mut raw) = started().await;
    let store = store_of_ann(&server, &mut raw, patient()).await;
    let (breaks, mends) = ("ACL SETUSER ann resetpass >new", "ACL SETUSER ann >old");
    assert_logged_twice(&store, &mut raw, (breaks, "assword", mends), false).await;
}

/// The outage policy does not admit claims during a fault that a person must repair.
#[tokio::test]
async fn a_right_that_a_user_loses_is_logged_once_and_so_is_its_return() {
    for rights in ["-eval -evalsha", "resetkeys ~other*"] {
        let (server, mut raw) = started().await;
        let admits = patient().when_unavailable(WhenUnavailable::Admit);
        let store = store_of_ann(&server, &mut raw, admits).await;
        let breaks = format!("ACL SETUSER ann {rights}");
        let fault = (&*breaks, "permissions to", "ACL SETUSER ann +@all ~*");
        assert_logged_twice(&store, &mut raw, fault, true).await;
    }
}

#[tokio::test]
async fn a_key_that_fails_while_others_work_is_logged_once() {
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
async fn waiting_claims_that_fail_while_others_work_are_logged_once() {
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

/// The outage itself may be logged by another thread, so only the mistake is expected here.
#[tokio::test]
async fn an_outage_that_turns_into_a_mistake_is_logged_as_a_mistake_too() {
    let (mut server, mut raw) = started().await;
    let store = store_of_ann(&server, &mut raw, patient()).await;
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
    eventually("the mistake is logged", BOUND, async || {
        assert!(store.acquire(claim(0)).await.is_err());
        let lines = warnings.lines();
        lines.iter().any(|line| line.contains("WRONGPASS"))
    })
    .await;
    let logged = warnings.lines();
    assert_all_fail(&store).await;
    assert_eq!(warnings.lines(), logged);
    let mut raw = Raw::connect(server.port()).await;
    ok(&mut raw, ANN).await;
    assert_works(&store).await;
    warnings.assert_over(&store).await;
}

#[tokio::test]
async fn paused_time_is_logged_once() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    // An answer may arrive before paused time jumps to a timeout, so some claims may succeed.
    let (warnings, _guard) = Warnings::listen();
    tokio::time::pause();
    while store.acquire(claim(0)).await.is_ok() {}
    warnings.assert_begun("tokio::time::pause");
}
