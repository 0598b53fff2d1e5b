//! Nothing is admitted before it is clear that the server is gone for all.

use crate::server::{BOUND, all, builder, claim, granted, know_each_other, opens};
use std::time::{Duration, Instant};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{RedisSemaphore, Semaphore, redis::WhenUnavailable::Share};

const LIMIT: u32 = 8;
const TIMEOUT: Duration = Duration::from_secs(1);
/// Less than that by what is between the first failure and its claim.
const CLEAR: Duration = Duration::from_millis(700);

/// A store behind a proxy, and another one that uses up the limit as soon as it may.
async fn two_stores(server: &RedisServer) -> (Proxy, RedisSemaphore, RedisSemaphore) {
    let proxy = Proxy::start(server).await;
    let slow = || {
        builder(Share)
            .lease(Duration::from_secs(12))
            .timeout(TIMEOUT)
    };
    let store = slow().connect(proxy.url()).await.expect("a server");
    let other = slow().connect(server.url()).await.expect("a server");
    know_each_other(server, 2).await;
    (proxy, store, other)
}

/// How long it takes until the store admits a claim.
async fn admits(store: &RedisSemaphore) -> Duration {
    let start = Instant::now();
    eventually("the policy admits a claim", BOUND, async || {
        store.acquire(claim(LIMIT)).await.is_ok()
    })
    .await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_while_it_settles_is_not_gone_at_once() {
    let mut server = RedisServer::start();
    let (proxy, store, other) = two_stores(&server).await;
    // Only this process has lost it, and it settles.
    proxy.refuse().await;
    proxy.kill(End::Reset);
    opens(&store).await;
    proxy.accept().await;
    eventually("it answers", BOUND, async || {
        let permit = store.acquire(claim(LIMIT)).await;
        permit.is_ok_and(|permit| !permit.is_degraded())
    })
    .await;
    sleep(Duration::from_millis(100)).await;
    let held = all(&other, LIMIT).await;
    assert_eq!(held.len() as u32, LIMIT);
    server.kill();
    let after = admits(&store).await;
    assert!(after >= CLEAR, "admitted {after:?} after the first failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_right_after_the_server_is_gone_is_not_admitted_before_that_is_clear() {
    let mut server = RedisServer::start();
    let (_proxy, store, other) = two_stores(&server).await;
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        held.push(granted(&other, LIMIT).await);
    }
    let wait = Duration::from_secs(3);
    let waiter = tokio::spawn(store.acquire(claim(LIMIT).with_wait(wait)));
    let begun = Instant::now();
    let mut raw = Raw::connect(server.port()).await;
    eventually("it waits", BOUND, async || {
        raw.zcard("semaphore:{concurrency:a}:queue").await == 1
    })
    .await;
    sleep(wait - Duration::from_millis(200) - begun.elapsed()).await;
    server.kill();
    let gone = Instant::now();
    let answer = waiter.await.expect("no panic");
    let after = gone.elapsed();
    assert!(
        answer.is_err() || after >= CLEAR,
        "admitted {after:?} after the server was gone"
    );
}
