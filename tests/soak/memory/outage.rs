//! Memory during an outage.
//!
//! Promises: P11.

use super::{TICK, resident};
use std::time::Duration;
use testing::{machine::alone, redis::RedisServer, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::WhenUnavailable};

/// A store that has noticed that its server is gone.
async fn cut_off(policy: WhenUnavailable, lease: Duration) -> RedisSemaphore {
    let mut server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(lease);
    let store = builder.when_unavailable(policy).connect(server.url()).await;
    let store = store.expect("it connects");
    server.kill();
    eventually("the policy decides", Duration::from_secs(10), async || {
        let permit = store.acquire(Claim::new("a").with_limit(5)).await;
        permit.is_ok_and(|permit| permit.is_degraded())
    })
    .await;
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_come_and_go_leave_no_memory() {
    let _alone = alone().await;
    let store = cut_off(
        WhenUnavailable::ShareOf { fraction: 0.5 },
        Duration::from_secs(10),
    )
    .await;
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
    let grown = resident().saturating_sub(before) / 1024;
    // Less than 90 bytes for each key.
    assert!(grown < 10_000, "{grown} KiB more after 120,000 keys");
}

/// Requests that last longer than a tick of the keeper and much less than a refresh interval.
#[tokio::test(flavor = "multi_thread")]
async fn degraded_permits_that_were_released_leave_no_memory_whatever_the_lease() {
    let _alone = alone().await;
    let store = cut_off(WhenUnavailable::Admit, Duration::from_secs(3_600)).await;
    let churn = async |round: u64| {
        let mut permits = Vec::new();
        for key in 0..30_000 {
            let claim = Claim::new(round * 100_000 + key).with_limit(2);
            permits.push(store.acquire(claim).await.expect("it is admitted"));
        }
        sleep(TICK).await;
    };
    churn(0).await;
    churn(1).await;
    let before = resident();
    for round in 2..7 {
        churn(round).await;
    }
    let grown = resident().saturating_sub(before) / 1024;
    // Less than 140 bytes for each permit.
    assert!(grown < 20_000, "{grown} KiB more after 150,000 permits");
}
