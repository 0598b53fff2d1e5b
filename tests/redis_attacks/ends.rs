//! Claims whose answer comes after the end of what it says.

use crate::support::{
    proxy::{End, Proxy},
    redis::RedisServer,
};
use futures_util::FutureExt;
use std::time::{Duration, Instant};
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

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_in_an_outage_ends_in_its_budget() {
    const TIMEOUT: Duration = Duration::from_millis(700);
    const WAIT: Duration = Duration::from_millis(1_050);
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let near = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    let _holder = near
        .acquire(Claim::new("a").with_limit(1))
        .await
        .expect("there is room");
    let builder = RedisSemaphore::builder()
        .lease(Duration::from_secs(12))
        .timeout(TIMEOUT);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let waiting = Claim::new("a")
        .with_limit(1)
        .with_wait(Duration::from_millis(300));
    drop(store.acquire(waiting.clone()).await);
    let start = Instant::now();
    let waiter = tokio::spawn(store.acquire(waiting.with_wait(WAIT)));
    sleep(Duration::from_millis(500)).await;
    proxy.black_hole();
    // Its heartbeat, after a second at most, has no answer; then the connection breaks.
    sleep(Duration::from_millis(950)).await;
    proxy.forward();
    proxy.delay(Duration::ZERO, Duration::from_millis(650));
    proxy.kill(End::Reset);
    let answer = waiter.await.expect("no panic");
    let took = start.elapsed();
    println!("{took:?}: {answer:?}");
    assert!(
        took < WAIT + TIMEOUT * 2 + Duration::from_millis(150),
        "{took:?}"
    );
}
