//! Risks of a server, and times in which claims fail: each of these is told twice, when it begins and when it is over.

use std::{
    io::{Result, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{
    AcquireError, Claim, RedisSemaphore, Semaphore,
    redis::{Builder, WhenUnavailable, client::Client},
};
use tracing::subscriber::DefaultGuard;

const BOUND: Duration = Duration::from_secs(20);
const CLAIMS: u64 = 30;

/// What this thread is warned of. A test has one thread, which carries its claims.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().expect("no test panics with it").write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
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

    /// It has begun to fail because of this, and nothing else is told.
    fn assert_begun(&self, cause: &str) {
        let lines = self.lines();
        let is_it = |line: &String| {
            line.starts_with("WARN tower_semaphore: the store fails error=") && line.contains(cause)
        };
        assert!(lines.len() == 1 && is_it(&lines[0]), "{cause}: {lines:#?}");
    }

    /// After a while without failures that is told, and nothing else.
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

/// Short, because a time in which claims fail is over after one without a failure.
const LEASE: Duration = Duration::from_secs(3);

fn patient() -> Builder {
    RedisSemaphore::builder().timeout(LEASE / 3).lease(LEASE)
}

fn claim(key: u64) -> Claim {
    Claim::new(key).with_limit(1)
}

/// Other claims than those that are to succeed later.
async fn assert_all_fail(store: &RedisSemaphore) {
    for key in 0..CLAIMS {
        let wait = Duration::from_millis(key % 2);
        let answer = store.acquire(claim(key).with_wait(wait)).await;
        assert!(
            matches!(answer, Err(AcquireError::Store { .. })),
            "{answer:?}"
        );
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

async fn ok(raw: &mut Raw, command: &[&str]) {
    assert_eq!(raw.cmd(command).await.text(), "OK", "{command:?}");
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
async fn a_password_that_is_set_is_told_once_and_its_removal_too() {
    let server = RedisServer::start();
    let store = patient().connect(server.url()).await.expect("it connects");
    assert_works(&store).await;
    let (warnings, _guard) = Warnings::listen();
    let mut raw = Raw::connect(server.port()).await;
    ok(&mut raw, &["CONFIG", "SET", "requirepass", "new"]).await;
    assert_works(&store).await;
    assert!(warnings.lines().is_empty(), "connections go on");
    raw.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    assert_all_fail(&store).await;
    // To a short command the server says something else than to a long one.
    warnings.assert_begun("uthentica");
    ok(&mut raw, &["CONFIG", "SET", "requirepass", ""]).await;
    assert_works(&store).await;
    warnings.assert_over(&store).await;
}

async fn add_user(raw: &mut Raw) {
    let user = "ACL SETUSER ann on >old ~* &* +@all";
    ok(raw, &user.split(' ').collect::<Vec<_>>()).await;
}

/// A store of a user whom the server knows.
async fn of_a_user(server: &RedisServer, raw: &mut Raw, builder: Builder) -> RedisSemaphore {
    add_user(raw).await;
    let url = format!("redis://ann:old@127.0.0.1:{}/", server.port());
    let store = builder.connect(url.as_str()).await.expect("it connects");
    assert_works(&store).await;
    store
}

#[tokio::test]
async fn a_password_that_is_changed_is_told_once_and_its_return_too() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = of_a_user(&server, &mut raw, patient()).await;
    let (warnings, _guard) = Warnings::listen();
    ok(&mut raw, &["ACL", "SETUSER", "ann", "resetpass", ">new"]).await;
    raw.cmd(&["CLIENT", "KILL", "USER", "ann"]).await;
    assert_all_fail(&store).await;
    warnings.assert_begun("assword");
    ok(&mut raw, &["ACL", "SETUSER", "ann", ">old"]).await;
    assert_works(&store).await;
    warnings.assert_over(&store).await;
}

/// No policy admits what a person has to mend.
#[tokio::test]
async fn a_right_that_is_taken_from_a_connection_is_told_once_and_its_return_too() {
    for rights in [["-eval", "-evalsha"], ["resetkeys", "~other*"]] {
        let server = RedisServer::start();
        let mut raw = Raw::connect(server.port()).await;
        let admits = patient().when_unavailable(WhenUnavailable::Admit);
        let store = of_a_user(&server, &mut raw, admits).await;
        let (warnings, _guard) = Warnings::listen();
        ok(&mut raw, &["ACL", "SETUSER", "ann", rights[0], rights[1]]).await;
        assert_all_fail(&store).await;
        warnings.assert_begun("permissions to");
        ok(&mut raw, &["ACL", "SETUSER", "ann", "+@all", "~*"]).await;
        assert_works(&store).await;
        warnings.assert_over(&store).await;
    }
}

#[tokio::test]
async fn a_key_that_fails_by_turns_with_others_is_told_once() {
    let server = RedisServer::start();
    let store = patient().connect(server.url()).await.expect("it connects");
    assert!(store.acquire(claim(0)).await.is_ok());
    let mut raw = Raw::connect(server.port()).await;
    let (warnings, _guard) = Warnings::listen();
    let held = "semaphore:{concurrency:bad}:held";
    ok(&mut raw, &["SET", held, "no set"]).await;
    let bad = || store.acquire(Claim::new("bad").with_limit(1));
    for key in 0..CLAIMS {
        assert!(matches!(bad().await, Err(AcquireError::Store { .. })));
        assert!(store.acquire(claim(key)).await.is_ok());
    }
    warnings.assert_begun("WRONGTYPE");
    raw.cmd(&["DEL", held]).await;
    assert!(bad().await.is_ok());
    warnings.assert_over(&store).await;
}

/// Only claims that wait need the command that is missing.
#[tokio::test]
async fn waiting_claims_that_fail_by_turns_with_others_are_told_once() {
    let server = RedisServer::start();
    let store = patient().connect(server.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let (warnings, _guard) = Warnings::listen();
    ok(&mut raw, &["ACL", "SETUSER", "default", "-zrange"]).await;
    for key in 0..CLAIMS {
        let held = store.acquire(claim(key)).await.expect("it is free");
        let waits = claim(key).with_wait(Duration::from_millis(20));
        let answer = store.acquire(waits).await;
        assert!(
            matches!(answer, Err(AcquireError::Store { .. })),
            "{answer:?}"
        );
        drop(held);
    }
    warnings.assert_begun("can't run this command");
    ok(&mut raw, &["ACL", "SETUSER", "default", "+zrange"]).await;
    warnings.assert_over(&store).await;
}

/// The beginning of an outage may be told by another thread.
#[tokio::test]
async fn an_outage_that_turns_into_a_mistake_is_told_as_one_too() {
    let mut server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = of_a_user(&server, &mut raw, patient()).await;
    let (warnings, _guard) = Warnings::listen();
    server.kill();
    let begun = Instant::now();
    while begun.elapsed() < LEASE {
        assert!(store.acquire(claim(0)).await.is_err());
        sleep(Duration::from_millis(10)).await;
    }
    // It does not know the user any more.
    server.restart();
    let is_told = || {
        warnings
            .lines()
            .iter()
            .any(|line| line.contains("WRONGPASS"))
    };
    eventually("a mistake is told", BOUND, async || {
        assert!(store.acquire(claim(0)).await.is_err());
        is_told()
    })
    .await;
    let told = warnings.lines();
    assert_all_fail(&store).await;
    assert_eq!(warnings.lines(), told);
    let mut raw = Raw::connect(server.port()).await;
    add_user(&mut raw).await;
    assert_works(&store).await;
    warnings.assert_over(&store).await;
}

#[tokio::test]
async fn the_server_of_a_supplied_connection_is_told_once() {
    let server = RedisServer::start();
    let client = Client::open(server.url()).expect("it is a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let store = patient().with_connection(connection.expect("it connects"));
    let store = store.expect("the settings are right");
    assert_works(&store).await;
    let mut raw = Raw::connect(server.port()).await;
    let (warnings, _guard) = Warnings::listen();
    ok(
        &mut raw,
        &["ACL", "SETUSER", "default", "-eval", "-evalsha"],
    )
    .await;
    assert_all_fail(&store).await;
    warnings.assert_begun("permissions to");
    ok(&mut raw, &["ACL", "SETUSER", "default", "+@all"]).await;
    assert_works(&store).await;
    warnings.assert_over(&store).await;
}

#[tokio::test]
async fn paused_time_is_told_once() {
    let server = RedisServer::start();
    let store = patient().connect(server.url()).await.expect("it connects");
    // Whatever comes before the thread waits is an answer, so some may succeed.
    let (warnings, _guard) = Warnings::listen();
    tokio::time::pause();
    let mut failed = 0;
    while failed < 1 {
        failed += usize::from(store.acquire(claim(0)).await.is_err());
    }
    warnings.assert_begun("tokio::time::pause");
}
