//! Nothing grows, and nothing hangs, while the server is away.

use crate::server::{BOUND, LEASE, PROCESSES, claim, degraded, granted, is_back, store};
use std::time::{Duration, Instant};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::runtime::Runtime;
use tower_semaphore::{AcquireError, Semaphore, redis::WhenUnavailable};

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_during_an_outage_ends_and_refuses() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Admit).await;
    let before = granted(&store, 5).await;
    server.kill();
    // The first may have reached the server. The permit itself is one that no server knows.
    drop(degraded(&store, 5).await);
    let permit = degraded(&store, 5).await;
    let start = Instant::now();
    let unreleased = store.shutdown(Duration::from_millis(300)).await;
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    assert!((1..=2).contains(&unreleased.len()), "{unreleased:?}");
    assert!(permit.is_lost() && before.is_lost());
    let refused = store.acquire(claim(5)).await;
    assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
}

#[test]
fn a_runtime_that_ends_during_an_outage_leaves_the_store_to_another() {
    let mut server = RedisServer::start();
    let (first, second) = (Runtime::new().expect("one"), Runtime::new().expect("two"));
    let store = first.block_on(store(&server, WhenUnavailable::ShareOf(1.0)));
    server.kill();
    let permit = first.block_on(degraded(&store, 5));
    drop(first);
    second.block_on(async {
        drop(degraded(&store, 5).await);
        server.restart();
        is_back(&store).await;
        eventually("it is in the books", BOUND, async || !permit.is_degraded()).await;
        drop(permit);
        let mut raw = Raw::connect(server.port()).await;
        eventually("it is free", BOUND, async || {
            raw.zcard(crate::server::HELD).await == 0
        })
        .await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_process_counts_no_longer_than_its_lease_although_the_clock_is_set_back() {
    let clock = testing::clock::SteppedClock::compile();
    clock.set(0);
    let server = clock.server();
    let _store = store(&server, WhenUnavailable::Share).await;
    let proxy = testing::proxy::Proxy::start(&server).await;
    let longer = crate::server::builder(WhenUnavailable::Share).lease(2 * LEASE);
    let other = longer.connect(proxy.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let mut counted = async |count| {
        eventually("so many count", BOUND, async || {
            raw.zcard(PROCESSES).await == count
        })
        .await;
    };
    counted(2).await;
    proxy.refuse().await;
    proxy.kill(testing::proxy::End::Close);
    drop(other);
    clock.set(-3_600);
    counted(1).await;
}
