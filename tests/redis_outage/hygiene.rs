//! Nothing grows, and nothing hangs, while the server is away.

use crate::server::{
    BOUND, LEASE, PROCESSES, claim, degraded, granted, is_back, is_refused, store,
};
use std::{
    fs,
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::runtime::Runtime;
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore, redis::WhenUnavailable};

/// This process's resident memory, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("it is a number")
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_come_and_go_leave_no_memory() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::ShareOf(0.5)).await;
    server.kill();
    drop(degraded(&store, 5).await);
    let churn = async |from: u64| {
        for key in from..from + 60_000 {
            let permit = store.acquire(Claim::new(key).with_limit(2)).await;
            assert!(permit.is_ok_and(|permit| permit.is_degraded()));
        }
    };
    churn(0).await;
    let before = resident();
    churn(1_000_000).await;
    churn(2_000_000).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 10_000, "{grown} KiB more after 120,000 keys");
}

/// Requests that last longer than a tick of the keeper, and much less than a refresh interval.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn degraded_permits_that_were_released_leave_no_memory_whatever_the_lease() {
    let mut server = RedisServer::start();
    let long = RedisSemaphore::builder().lease(Duration::from_secs(3_600));
    let store = long.when_unavailable(WhenUnavailable::Admit);
    let store = store.connect(server.url()).await.expect("it connects");
    server.kill();
    drop(degraded(&store, 5).await);
    let churn = async |round: u64| {
        let mut permits = Vec::new();
        for key in 0..30_000 {
            let claim = Claim::new(round * 100_000 + key).with_limit(2);
            permits.push(store.acquire(claim).await.expect("it is admitted"));
        }
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    };
    churn(0).await;
    churn(1).await;
    let before = resident();
    for round in 2..7 {
        churn(round).await;
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 20_000, "{grown} KiB more after 150,000 permits");
}

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
async fn a_store_that_was_never_told_of_others_takes_the_least() {
    let server = RedisServer::start();
    server.stop();
    let connection = {
        server.cont();
        let connection = testing::stores::connection(&server.url()).await;
        server.stop();
        connection
    };
    let builder = crate::server::builder(WhenUnavailable::Share);
    let store = builder.build_on(connection).expect("it is built");
    let one = store.acquire(claim(10)).await.expect("one is the least");
    is_refused(store.acquire(claim(10)).await);
    drop(one);
    server.cont();
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
