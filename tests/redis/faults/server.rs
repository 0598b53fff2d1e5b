//! Redis is paused, stopped, or out of memory. Also the settings that a store refuses.
//!
//! Promises: P4, P18, P20.

use std::time::{Duration, Instant};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore, redis};

const LEASE: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(10);
/// The time within which a store serves again after its server is back.
const BACK: Duration = Duration::from_secs(2);
/// The longest time of a claim: 500 ms with a reconnect, and slack for a busy machine.
const CLAIM_TIME: Duration = Duration::from_millis(1_500);
const HELD: &str = "semaphore:2:{concurrency:a}:held";

async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    builder.connect(server.url()).await.expect("it connects")
}

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

/// The store's error for a failed claim. Any other answer is wrong.
async fn failure(store: &RedisSemaphore) -> redis::Error {
    let start = Instant::now();
    let answer = store.acquire(claim(5)).await;
    assert!(
        start.elapsed() < CLAIM_TIME,
        "it took {:?}",
        start.elapsed()
    );
    let error = answer.expect_err("no server can grant it");
    let AcquireError::Store { source: error, .. } = error else {
        panic!("not reported as a failure of the store: {error}");
    };
    let source = std::error::Error::source(&error).expect("it has a cause");
    source
        .downcast_ref::<redis::Error>()
        .expect("it is ours")
        .clone()
}

/// Asserts that all five permits are granted, so failed claims left nothing behind.
async fn assert_serves_in_full(store: &RedisSemaphore, within: Duration) {
    eventually("it serves again, in full", within, async || {
        let mut permits = Vec::new();
        while let Ok(permit) = store.acquire(claim(5)).await {
            permits.push(permit);
        }
        let all = permits.len() == 5;
        for permit in permits {
            permit.release().await;
        }
        all
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_is_an_error_of_the_store_and_then_serves_in_full_again() {
    let server = RedisServer::start();
    let store = store(&server).await;
    drop(store.acquire(claim(5)).await);
    let mut raw = Raw::connect(server.port()).await;
    let pause = ["CLIENT", "PAUSE", "2500", "ALL"];
    assert_eq!(raw.cmd(&pause).await.text(), "OK");
    let paused = Instant::now();
    for _ in 0..8 {
        failure(&store).await;
    }
    let rest = Duration::from_millis(2_500).saturating_sub(paused.elapsed());
    assert_serves_in_full(&store, rest + BACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_shorter_than_the_lease_loses_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = store.acquire(claim(1)).await.expect("there is room");
    server.stop();
    tokio::time::sleep(LEASE / 3).await;
    server.cont();
    let token = permit.token();
    let mut raw = Raw::connect(server.port()).await;
    let end = raw.zmembers(HELD).await[0].1;
    eventually("it is refreshed", BOUND, async || {
        raw.zmembers(HELD).await[0].1 > end
    })
    .await;
    assert!(!permit.is_lost());
    assert_eq!(permit.token(), token);
    assert!(permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_does_not_stop_acquire_refresh_or_release() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = store.acquire(claim(5)).await.expect("there is room");
    let mut raw = Raw::connect(server.port()).await;
    // One byte, so a plain write is refused.
    raw.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = raw.cmd(&["SET", "x", "y"]).await;
    assert!(
        refused
            .error()
            .is_some_and(|error| error.starts_with("OOM"))
    );
    let permit = store
        .acquire(claim(5))
        .await
        .expect("it works without memory");
    assert!(permit.release().await);
    let end = raw.zmembers(HELD).await[0].1;
    eventually("it is refreshed", BOUND, async || {
        raw.zmembers(HELD).await[0].1 > end
    })
    .await;
    assert!(held.release().await);
}

#[tokio::test]
async fn wrong_settings_are_named() {
    let builder = RedisSemaphore::builder;
    for (wrong, setting) in [
        (builder().prefix("a{b"), "prefix"),
        (builder().lease(Duration::ZERO), "lease"),
        (builder().lease(Duration::MAX), "lease"),
        (builder().timeout(Duration::ZERO), "timeout"),
        (builder().timeout(LEASE * 10), "timeout"),
        (
            builder().when_unavailable(redis::WhenUnavailable::ShareOf { fraction: 1.5 }),
            "when_unavailable",
        ),
    ] {
        match wrong.connect("redis://127.0.0.1:1/").await {
            Err(error) => assert_eq!(error.setting(), Some(setting)),
            Ok(_) => panic!("{setting} is accepted"),
        }
    }
}
