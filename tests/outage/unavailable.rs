//! Failures that count as unavailability, and failures that do not.
//!
//! Promises: P18.

use crate::server::{BOUND, HELD, assert_refused, claim, degraded, granted, store};
use futures_util::future::join_all;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{AcquireError, Permit, RedisSemaphore, Semaphore, redis::WhenUnavailable};

const QUEUE: &str = "semaphore:2:{concurrency:a}:queue";

/// Waits until a command is refused with an error of this kind.
async fn wait_until_refused(raw: &mut Raw, command: &[&str], kind: &str) {
    eventually(kind, BOUND, async || {
        let answer = raw.cmd(command).await;
        answer.error().is_some_and(|error| error.starts_with(kind))
    })
    .await;
}

/// True if a claim failed with the server's error that contains this word, so no outage policy decided it.
fn is_mistake(answer: &Result<Permit, AcquireError>, word: &str) -> bool {
    let is_mistake = matches!(answer, Err(AcquireError::Store { .. }));
    is_mistake && format!("{answer:?}").contains(word)
}

/// A server with a store of each policy, and a reader that bypasses them.
struct Fixture {
    server: RedisServer,
    admits: RedisSemaphore,
    refuses: RedisSemaphore,
    raw: Raw,
}

impl Fixture {
    async fn with(args: &[&str]) -> Self {
        Self::on(RedisServer::with(args)).await
    }

    async fn on(server: RedisServer) -> Self {
        let fixture = Self {
            admits: store(&server, WhenUnavailable::Admit).await,
            refuses: store(&server, WhenUnavailable::Refuse).await,
            raw: Raw::connect(server.port()).await,
            server,
        };
        for store in [&fixture.admits, &fixture.refuses] {
            assert!(granted(store, 5).await.release().await);
        }
        fixture
    }

    async fn set(&mut self, command: &[&str]) {
        assert_eq!(self.raw.cmd(command).await.error(), None, "{command:?}");
    }

    /// Asserts that the policies decide each of several claims, before and after the breaker opens. One of the first
    /// errors must contain the server's words.
    async fn assert_decided_by_the_policy(&self, words: &str) {
        let mut errors = String::new();
        for _ in 0..8 {
            drop(degraded(&self.admits, 5).await);
            let answer = self.refuses.acquire(claim(5)).await;
            errors += &format!("{answer:?}");
            assert_refused(answer);
        }
        assert!(errors.contains(words), "{errors}");
    }

    /// Asserts that each of several claims fails with the server's error, because a mistake is no outage.
    async fn assert_decided_by_no_policy(&self, word: &str) {
        for store in [&self.admits, &self.refuses] {
            for _ in 0..8 {
                let answer = store.acquire(claim(5)).await;
                assert!(is_mistake(&answer, word), "{answer:?}");
            }
        }
    }

    async fn wait_until_it_serves(&self) {
        for store in [&self.admits, &self.refuses] {
            eventually("it serves again", BOUND, async || {
                let permit = store.acquire(claim(100)).await;
                permit.is_ok_and(|permit| !permit.is_degraded())
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_is_unavailable() {
    // Loading takes a tenth of a second for each of the 60 keys.
    let debug = "--enable-debug-command yes --key-load-delay 100000";
    let args = format!("{debug} --loading-process-events-interval-bytes 1024");
    let args: Vec<_> = args.split(' ').collect();
    let mut fixture = Fixture::with(&args).await;
    for key in 0..60 {
        fixture
            .set(&["SET", &format!("key{key}"), &"x".repeat(2_000)])
            .await;
    }
    fixture
        .raw
        .send(&["DEBUG", "RELOAD"])
        .await
        .expect("it is sent");
    let mut other = Raw::connect(fixture.server.port()).await;
    wait_until_refused(&mut other, &["GET", "key1"], "LOADING").await;
    fixture.assert_decided_by_the_policy("").await;
    assert!(
        other.cmd(&["GET", "key1"]).await.error().is_some(),
        "loading ended before the claims did"
    );
    fixture.wait_until_it_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_become_a_replica_is_unavailable() {
    let mut fixture = Fixture::with(&[]).await;
    fixture.set(&["REPLICAOF", "127.0.0.1", "1"]).await;
    fixture.assert_decided_by_the_policy("ReadOnly").await;
    fixture.set(&["REPLICAOF", "NO", "ONE"]).await;
    fixture.wait_until_it_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_its_primary_is_unavailable() {
    let mut fixture = Fixture::with(&["--replica-serve-stale-data", "no"]).await;
    fixture.set(&["REPLICAOF", "127.0.0.1", "1"]).await;
    wait_until_refused(&mut fixture.raw, &["GET", "a"], "MASTERDOWN").await;
    fixture.assert_decided_by_the_policy("MasterDown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_lacks_replicas_is_unavailable() {
    let mut fixture = Fixture::with(&[]).await;
    fixture
        .set(&["CONFIG", "SET", "min-replicas-to-write", "3"])
        .await;
    fixture.assert_decided_by_the_policy("NOREPLICAS").await;
    fixture
        .set(&["CONFIG", "SET", "min-replicas-to-write", "0"])
        .await;
    fixture.wait_until_it_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_save_is_unavailable() {
    let mut fixture = Fixture::with(&["--enable-protected-configs", "yes"]).await;
    fixture.set(&["CONFIG", "SET", "save", "3600 1"]).await;
    fixture.set(&["CONFIG", "SET", "dir", "/proc"]).await;
    fixture.set(&["BGSAVE"]).await;
    wait_until_refused(&mut fixture.raw, &["SET", "b", "1"], "MISCONF").await;
    fixture.assert_decided_by_the_policy("MISCONF").await;
    fixture
        .set(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"])
        .await;
    fixture.wait_until_it_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_a_long_script_is_unavailable() {
    let mut fixture = Fixture::with(&["--busy-reply-threshold", "20"]).await;
    let endless = fixture.raw.send(&["EVAL", "while true do end", "0"]);
    endless.await.expect("it is sent");
    let mut other = Raw::connect(fixture.server.port()).await;
    wait_until_refused(&mut other, &["GET", "a"], "BUSY").await;
    fixture.assert_decided_by_the_policy("BUSY").await;
    other.cmd(&["SCRIPT", "KILL"]).await;
    fixture.wait_until_it_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_slots_is_unavailable() {
    let server = RedisServer::with(&["--cluster-enabled", "yes"]);
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually("the cluster is up", BOUND, async || {
        raw.cmd(&["GET", "a"]).await.error().is_none()
    })
    .await;
    let mut fixture = Fixture::on(server).await;
    fixture
        .set(&["CLUSTER", "DELSLOTSRANGE", "0", "16383"])
        .await;
    fixture.assert_decided_by_the_policy("Cluster").await;
    fixture
        .set(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    fixture.wait_until_it_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_a_mistake() {
    let mut fixture = Fixture::with(&[]).await;
    fixture.set(&["DEL", HELD]).await;
    fixture.set(&["SET", HELD, "no set"]).await;
    fixture.assert_decided_by_no_policy("WRONGTYPE").await;
    let value = fixture.raw.cmd(&["GET", HELD]).await;
    assert_eq!(value.text(), "no set", "it belongs to another program");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_the_user_lacks_is_a_mistake() {
    let mut fixture = Fixture::with(&[]).await;
    fixture
        .set(&["ACL", "SETUSER", "default", "-evalsha", "-eval"])
        .await;
    fixture.assert_decided_by_no_policy("NoPerm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_has_become_wrong_is_a_mistake() {
    let mut fixture = Fixture::with(&[]).await;
    fixture
        .set(&["CONFIG", "SET", "requirepass", "secret"])
        .await;
    fixture
        .set(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    // Redis answers a long command before `AUTH` with this word, and a short one with `NOAUTH`.
    const WORD: &str = "uthentica";
    // The connections break one after another, each at its next command, so the policies may decide a few claims at
    // first.
    eventually("neither policy decides", BOUND, async || {
        for store in [&fixture.admits, &fixture.refuses].repeat(16) {
            if !is_mistake(&store.acquire(claim(5)).await, WORD) {
                return false;
            }
        }
        true
    })
    .await;
    for store in [&fixture.admits, &fixture.refuses].repeat(8) {
        let answer = store.acquire(claim(5)).await;
        assert!(answer.is_err(), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_survive_a_moment_without_replicas() {
    let mut fixture = Fixture::with(&[]).await;
    for store in [&fixture.admits, &fixture.refuses] {
        let wait = || store.acquire(claim(1).with_wait(BOUND * 3));
        let held = wait().await.expect("it is free soon");
        let waiters: Vec<_> = (0..20).map(|_| tokio::spawn(wait())).collect();
        let raw = &mut fixture.raw;
        eventually("all wait", BOUND, async || raw.zcard(QUEUE).await == 20).await;
        for replicas in ["3", "0"] {
            let set = ["CONFIG", "SET", "min-replicas-to-write", replicas];
            assert_eq!(raw.cmd(&set).await.error(), None);
            sleep(Duration::from_millis(100)).await;
        }
        drop(held);
        // Each waiter passes its permit on as soon as it is granted.
        let turns = waiters.into_iter().map(async |waiter| {
            let permit = waiter.await.expect("no panic").expect("its turn comes");
            assert!(!permit.is_degraded());
        });
        join_all(turns).await;
    }
}
