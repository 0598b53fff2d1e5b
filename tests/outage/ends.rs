//! Waiting claims and shutdowns during an outage.
//!
//! Promises: P14, P18.

use crate::server::{
    BOUND, HELD, LEASE, assert_refused, builder, claim, degraded, granted, store, wait_until_open,
};
use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testing::{
    redis::{PROCESSES, RedisServer},
    resp::Raw,
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{
    Semaphore,
    redis::WhenUnavailable::{self, Admit, Refuse, Share, ShareOf},
};

/// Longer than any test here.
const WAIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_would_wait_is_decided_at_once_while_the_breaker_is_open() {
    let mut server = RedisServer::start();
    let store = store(&server, ShareOf { fraction: 0.5 }).await;
    server.kill();
    let held = [degraded(&store, 4).await, degraded(&store, 4).await];
    eventually("the breaker is open", BOUND, async || {
        let start = Instant::now();
        assert_refused(store.acquire(claim(4).with_wait(WAIT)).await);
        // At once, and not after `WAIT`.
        start.elapsed() < LEASE / 4
    })
    .await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_begins_in_an_outage_releases_when_the_server_is_back() {
    join_all([Refuse, Admit, Share].map(assert_leaves_nothing)).await;
}

async fn assert_leaves_nothing(policy: WhenUnavailable) {
    let server = RedisServer::start();
    // Longer than the test, so that no lease ends by itself.
    let builder = builder(policy).lease(Duration::from_secs(60));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(granted(&store, 5).await);
    }
    server.stop();
    wait_until_open(&store).await;
    let leaving = store.clone();
    let shutdown = tokio::spawn(async move { leaving.shutdown(BOUND).await });
    // The shutdown begins while the server is stopped.
    sleep(Duration::from_millis(500)).await;
    server.cont();
    let unreleased = shutdown.await.expect("no panic");
    let mut raw = Raw::connect(server.port()).await;
    let stored = raw.zcard(HELD).await;
    assert!(
        unreleased.is_empty() && stored == 0,
        "{policy:?}: {} unreleased, {stored} in the server",
        unreleased.len()
    );
    eventually("the process counts no longer", BOUND, async || {
        raw.zcard(PROCESSES).await == 0
    })
    .await;
}
