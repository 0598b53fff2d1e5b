//! Claims whose answer comes after the end of what it says.

use futures_util::FutureExt;
use std::time::Duration;
use testing::redis::RedisServer;
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_not_polled_for_two_leases_gets_a_permit_that_is_held_or_none() {
    let server = RedisServer::start();
    let lease = Duration::from_secs(1);
    let builder = RedisSemaphore::builder().lease(lease);
    let store = builder.connect(server.url()).await.expect("it connects");
    let other = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    drop(store.acquire(Claim::new("warm").with_limit(1)).await);
    let mut unpolled = store.acquire(Claim::new("a").with_limit(1));
    // Polled once: it is sent, and its answer is not read.
    server.stop();
    assert!((&mut unpolled).now_or_never().is_none());
    server.cont();
    sleep(lease * 2).await;
    let others = other.acquire(Claim::new("a").with_limit(1)).await;
    let answer = unpolled.await;
    assert!(answer.is_ok() != others.is_ok(), "{answer:?}, {others:?}");
    if let Ok(permit) = answer {
        assert!(timeout(lease * 2, permit.lost()).await.is_err());
        assert!(permit.release().await, "it was held all the time");
    }
}
