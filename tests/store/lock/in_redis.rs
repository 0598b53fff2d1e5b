//! The keys that a lock leaves in Redis, and how other clients can interfere with them.
//!
//! Promises: P6.

use super::{BOUND, locked};
use std::{str, time::Duration};
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
    wait::eventually,
};
use tower_semaphore::{Lock, LockGuard, RedisSemaphore};

const LEASE: Duration = Duration::from_millis(600);
const HELD: &str = "semaphore:2:{lock:a}:held";
const QUEUE: &str = "semaphore:2:{lock:a}:queue";
const ALIVE: &str = "semaphore:2:{lock:a}:alive";
const TOKEN: &str = "semaphore:2:{lock:a}:token";

/// A lock of the same key, from a separate store.
async fn lock(server: &RedisServer) -> Lock {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    let store = builder.connect(server.url()).await;
    Lock::new(store.expect("it connects"), "a")
}

/// A guard whose lock the server has lost and granted again, and the guard of the new holder.
async fn overtaken(server: &RedisServer, raw: &mut Raw) -> (LockGuard, LockGuard) {
    let (ours, other) = (lock(server).await, lock(server).await);
    let old = locked(&ours).await;
    raw.cmd(&["DEL", HELD]).await;
    (old, locked(&other).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_although_every_key_has_expired() {
    let server = RedisServer::start();
    let (lock, mut raw) = (lock(&server).await, Raw::connect(server.port()).await);
    let mut last = locked(&lock).await.token();
    for _ in 0..2 {
        // The keys expire eight leases after their last use, which is the release.
        eventually("no key of a lock is left", LEASE * 8 + BOUND, async || {
            raw.keys("semaphore:2:{*").await.is_empty()
        })
        .await;
        let guard = locked(&lock).await;
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_returns_false_when_the_lock_was_lost() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let (old, new) = overtaken(&server, &mut raw).await;
    assert!(!old.release().await);
    assert!(new.release().await, "the loser freed it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_was_lost_frees_nothing_when_it_is_dropped() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let (old, new) = overtaken(&server, &mut raw).await;
    raw.reset_stats().await;
    drop(old);
    eventually("the release has come", BOUND, async || {
        raw.commandstats().await.contains_key("zrem")
    })
    .await;
    assert_eq!(raw.zmembers(HELD).await.len(), 1);
    assert!(new.release().await);
}

/// The script with which the library releases a permit.
const RELEASE: &str = concat!(
    include_str!("../../../proto/src/verbs/common.lua"),
    include_str!("../../../proto/src/verbs/grant.lua"),
    include_str!("../../../proto/src/verbs/release.lua")
);

/// Sends the release script for `id`, as a process that does not own it could.
async fn forge(raw: &mut Raw, id: &str) {
    let keys = ["4", HELD, QUEUE, ALIVE, TOKEN];
    // An answer is wanted, the lowest token is 0, and one unit is named.
    let args = ["1", "0", "1", id];
    let forged = [&["EVAL", RELEASE][..], &keys, &args].concat();
    let Reply::Array(answer) = raw.cmd(&forged).await else {
        panic!("not a list");
    };
    // The server's time comes first.
    assert_eq!(answer[1..], [Reply::Int(0)], "{id} was held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_release_touches_nothing() {
    let server = RedisServer::start();
    let (ours, mut raw) = (lock(&server).await, Raw::connect(server.port()).await);
    let guard = locked(&ours).await;
    let owner = raw.zmembers(HELD).await.remove(0).0;
    let owner = str::from_utf8(&owner).expect("an id is plain");
    let (process, rest) = owner.split_once('.').expect("PROCESS.REST");
    let stranger = format!("{}.{rest}", "0".repeat(process.len()));
    // The next permit of the same process, and the second unit of the same permit.
    let sibling = owner.replacen(".1.", ".2.", 1);
    let unit = format!("{owner}:2");
    for id in [stranger.as_str(), &sibling, &unit, process, "", "*"] {
        assert_ne!(id, owner);
        forge(&mut raw, id).await;
    }
    let held = raw.zmembers(HELD).await;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].0, owner.as_bytes());
    assert!(guard.release().await);
}

/// The time until which the waiter counts as alive without another heartbeat.
async fn alive_until(raw: &mut Raw) -> f64 {
    raw.zmembers(ALIVE).await[0].1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_of_a_grant_that_is_over_is_not_accepted() {
    let server = RedisServer::start();
    let (ours, other) = (lock(&server).await, lock(&server).await);
    let mut raw = Raw::connect(server.port()).await;
    let guard = locked(&ours).await;
    let waiter = tokio::spawn(async move { locked(&other).await });
    eventually("it waits", BOUND, async || {
        raw.zmembers(ALIVE).await.len() == 1
    })
    .await;
    let (id, _) = raw.zmembers(QUEUE).await.remove(0);
    let id = String::from_utf8(id).expect("an id is plain");
    let words: Vec<&str> = id.split('.').collect();
    // A message to a process has the claim's id within it, the grant's token, and the units in use.
    let (channel, message) = (
        format!("semaphore:2:wake:{}", words[0]),
        format!("{} {} 1", words[1..4].join("."), guard.token()),
    );
    eventually("it receives the message", BOUND, async || {
        raw.cmd(&["PUBLISH", &channel, &message]).await.int() == 1
    })
    .await;

    let before = alive_until(&mut raw).await;
    eventually("it polls again", BOUND, async || {
        alive_until(&mut raw).await > before
    })
    .await;
    assert!(!waiter.is_finished(), "it has two holders");
    let token = guard.token();
    assert!(guard.release().await);
    assert!(waiter.await.expect("it did not panic").token() > token);
}
