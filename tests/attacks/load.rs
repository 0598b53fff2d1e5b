//! What remains of permits that have ended, and what a read-only server costs.

use std::time::{Duration, Instant};
use testing::{machine::alone, proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(20);
/// In it a storm makes many connections.
const TIME: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_gets_no_storm_of_connections() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    drop(store.acquire(Claim::new("a").with_limit(1)).await);
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await;
    raw.reset_stats().await;
    let (start, mut claims) = (Instant::now(), 0);
    while start.elapsed() < TIME {
        claims += 1;
        assert!(store.acquire(Claim::new("a").with_limit(1)).await.is_err());
        sleep(Duration::from_millis(2)).await;
    }
    let connections = raw.stat("total_connections_received").await;
    assert!(
        connections < 100,
        "{connections} connections for {claims} claims in {TIME:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_claim_is_sent_once_while_other_keys_are_released() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let near = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    let full = Claim::new("full").with_limit(1);
    let _holder = near.acquire(full.clone()).await.expect("there is room");
    let store = RedisSemaphore::connect(proxy.url())
        .await
        .expect("it connects");
    let delay = Duration::from_millis(10);
    proxy.delay(delay, delay);
    let others = (0..40).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0.. {
                let claim = Claim::new(format!("{task}-{round}")).with_limit(1);
                drop(store.acquire(claim).await);
            }
        })
    });
    let others: Vec<_> = others.collect();
    eventually("the others are at it", BOUND, async || {
        proxy.count(b"EVALSHA") > 100
    })
    .await;
    proxy.clear_log();
    for _ in 0..50 {
        assert!(store.acquire(full.clone()).await.is_err());
    }
    let is_acquire = |args: &[Vec<u8>]| {
        args.iter()
            .any(|arg| arg.ends_with(b"{concurrency:full}:held"))
    };
    let acquires = proxy
        .log()
        .iter()
        .filter(|seen| is_acquire(&seen.args))
        .count();
    others.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(acquires < 60, "{acquires} calls for 50 refusals");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_subscriptions_gets_no_storm_of_connections() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    // Later, because a store that lacks it from the start does not connect.
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["ACL", "SETUSER", "default", "-subscribe"]).await;
    let waiting = Claim::new("a")
        .with_limit(1)
        .with_wait(Duration::from_secs(1));
    drop(store.acquire(waiting).await.expect("there is room"));
    raw.reset_stats().await;
    sleep(TIME).await;
    let connections = raw.stat("total_connections_received").await;
    assert!(
        connections < 20,
        "{connections} connections in {TIME:?}, and nothing waits"
    );
}
