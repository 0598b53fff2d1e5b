//! Stores that shut down during an outage, or just after one.

use crate::server::{BOUND, HELD, PROCESSES, builder, claim, degraded, granted, store};
use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::timeout;
use tower_semaphore::{
    AcquireError, Claim, RedisSemaphore, Semaphore,
    redis::WhenUnavailable::{self, Admit, Refuse, Share, ShareOf},
};

/// Waits until the breaker is open: claims are decided at once.
async fn opens(store: &RedisSemaphore) {
    eventually("claims are decided at once", BOUND, async || {
        let start = Instant::now();
        drop(store.acquire(Claim::new("opens").with_limit(1_000)).await);
        start.elapsed() < Duration::from_millis(20)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_begins_in_an_outage_releases_when_the_server_is_back() {
    join_all([Refuse, Admit, Share].map(leaves_nothing)).await;
}

async fn leaves_nothing(policy: WhenUnavailable) {
    let server = RedisServer::start();
    // Longer than the test, so that no lease ends by itself.
    let builder = builder(policy).lease(Duration::from_secs(60));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(granted(&store, 5).await);
    }
    server.stop();
    opens(&store).await;
    let leaving = store.clone();
    let shutdown = tokio::spawn(async move { leaving.shutdown(BOUND).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.cont();
    let unreleased = shutdown.await.expect("no panic");
    let mut raw = Raw::connect(server.port()).await;
    let left = raw.zcard(HELD).await;
    assert!(
        unreleased.is_empty() && left == 0,
        "{policy:?}: {} unreleased, {left} in the store",
        unreleased.len()
    );
    eventually("it counts no more", BOUND, async || {
        raw.zcard(PROCESSES).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_just_after_an_outage_ends_claims_that_wait() {
    let mut server = RedisServer::start();
    let store = store(&server, ShareOf(0.5)).await;
    server.kill();
    let held = degraded(&store, 2).await;
    opens(&store).await;
    server.restart();
    eventually("it is in the books", BOUND, async || !held.is_degraded()).await;
    let waiting = tokio::spawn(store.acquire(claim(2).with_wait(Duration::from_secs(60))));
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(store.shutdown(Duration::from_secs(2)).await);
    let answer = timeout(BOUND, waiting).await.expect("it is decided");
    let answer = answer.expect("no panic");
    assert!(matches!(answer, Err(AcquireError::Closed)), "{answer:?}");
}
