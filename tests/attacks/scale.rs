//! Heavy permits, short leases and long ones.

use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testing::{machine::alone, proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

#[tokio::test(flavor = "multi_thread")]
async fn heavy_permits_of_one_key_are_kept() {
    let lost = lost_of(64).await;
    assert_eq!(lost, 0, "of 64");
}

async fn lost_of(count: usize) -> usize {
    let server = RedisServer::start();
    let lease = Duration::from_secs(3);
    let builder = RedisSemaphore::builder().lease(lease);
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut permits = Vec::new();
    for _ in 0..count {
        let claim = Claim::new("heavy").with_limit(1_000_000).with_weight(1_000);
        permits.push(store.acquire(claim).await.expect("there is room"));
    }
    // Without a refresh they end by then.
    sleep(lease * 3 / 2).await;
    permits.iter().filter(|permit| permit.is_lost()).count()
}

async fn queue(lease: Duration) -> usize {
    let server = RedisServer::start();
    let timeout = (lease / 3).min(Duration::from_millis(250));
    let builder = RedisSemaphore::builder().lease(lease).timeout(timeout);
    let store = builder.connect(server.url()).await.expect("it connects");
    let claim = Claim::new("a").with_limit(1);
    let claim = claim.with_wait(Duration::from_secs(20));
    let mut raw = Raw::connect(server.port()).await;
    raw.reset_stats().await;
    let start = Instant::now();
    let waiters = (0..400).map(|_| {
        let waiter = store.acquire(claim.clone());
        tokio::spawn(async move {
            let permit: Permit = waiter.await?;
            sleep(Duration::from_millis(1)).await;
            drop(permit);
            Ok::<_, tower_semaphore::AcquireError>(())
        })
    });
    let waiters: Vec<_> = waiters.collect();
    let ended = join_all(waiters).await;
    let failed = ended
        .iter()
        .filter(|ended| !matches!(ended, Ok(Ok(()))))
        .count();
    let example = ended.iter().find(|ended| !matches!(ended, Ok(Ok(()))));
    let calls = raw.commandstats().await;
    println!(
        "{lease:?}: {failed} of 400 failed in {:?} with {:?} calls, {example:?}",
        start.elapsed(),
        calls.get("evalsha")
    );
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_under_a_short_lease_is_served() {
    let _alone = alone().await;
    assert_eq!(queue(Duration::from_secs(3)).await, 0);
    assert_eq!(queue(Duration::from_secs(1)).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_lost_costs_a_waiter_seconds_whatever_the_lease() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(3_600));
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let claim = Claim::new("a").with_limit(1);
    let holder = store.acquire(claim.clone()).await.expect("there is room");
    let waiter = tokio::spawn(store.acquire(claim.with_wait(Duration::from_secs(15))));
    let mut raw = Raw::connect(server.port()).await;
    eventually(
        "it waits for a message",
        Duration::from_secs(15),
        async || {
            let channels = raw.cmd(&["PUBSUB", "CHANNELS"]).await;
            let is_subscribed = !channels.array().is_empty();
            is_subscribed && raw.zcard("semaphore:{concurrency:a}:queue").await == 1
        },
    )
    .await;
    // A new subscription makes it poll once.
    sleep(Duration::from_millis(300)).await;
    proxy.drop_messages(true);
    let start = Instant::now();
    assert!(holder.release().await);
    let granted = waiter.await.expect("no panic");
    let took = start.elapsed();
    assert!(granted.is_ok(), "{granted:?}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}
