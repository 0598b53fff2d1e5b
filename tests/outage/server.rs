//! Helpers of these tests: stores, claims, and observations of the server that bypass the library.

use std::time::{Duration, Instant};
use testing::{
    redis::{RedisServer, until_processes_know_each_other},
    resp::Raw,
    stores::connected,
    wait::eventually,
};
use tower_semaphore::{
    AcquireError, Claim, Permit, RedisSemaphore, Semaphore,
    redis::{Builder, WhenUnavailable},
};

/// Generous, because no test that uses it measures time.
pub(crate) const BOUND: Duration = Duration::from_secs(20);
pub(crate) const LEASE: Duration = Duration::from_millis(1_500);
/// Two refresh intervals.
pub(crate) const TWO_REFRESHES: Duration = Duration::from_secs(1);
pub(crate) const HELD: &str = "semaphore:2:{concurrency:a}:held";

pub(crate) fn builder(policy: WhenUnavailable) -> Builder {
    RedisSemaphore::builder()
        .lease(LEASE)
        .when_unavailable(policy)
}

pub(crate) async fn store(server: &RedisServer, policy: WhenUnavailable) -> RedisSemaphore {
    // On a busy machine the first attempt may be too slow.
    connected(async || builder(policy).connect(server.url()).await).await
}

pub(crate) fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

pub(crate) async fn granted(store: &RedisSemaphore, limit: u32) -> Permit {
    let permit = store.acquire(claim(limit)).await.expect("there is room");
    assert!(!permit.is_degraded() && permit.token().is_some());
    permit
}

pub(crate) async fn degraded(store: &RedisSemaphore, limit: u32) -> Permit {
    let permit = admitted_soon(store, claim(limit)).await;
    assert!(permit.is_degraded(), "the server has granted it");
    assert_eq!(permit.token(), None);
    permit
}

/// Claims until the policy admits the claim. Right after the server has gone, claims may be refused while the keeper
/// counts the held permits.
pub(crate) async fn admitted_soon(store: &RedisSemaphore, claim: Claim) -> Permit {
    let mut permit = None;
    eventually("the policy admits it", BOUND, async || {
        permit = store.acquire(claim.clone()).await.ok();
        permit.is_some()
    })
    .await;
    permit.expect("it has just been admitted")
}

/// Asserts that the claim failed because of the store, not because a limit was reached.
pub(crate) fn assert_refused(answer: Result<Permit, AcquireError>) {
    match answer {
        Err(AcquireError::Store { .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// Acquires permits until the policy admits no more.
pub(crate) async fn acquire_until_refused(store: &RedisSemaphore, limit: u32) -> Vec<Permit> {
    let permits = acquire_until_error(store, limit).await;
    assert_refused(store.acquire(claim(limit)).await);
    permits
}

/// Waits until `count` processes are registered in Redis, and each of them knows this number.
pub(crate) async fn wait_until_known(server: &RedisServer, count: usize) {
    let mut raw = Raw::connect(server.port()).await;
    until_processes_know_each_other(&mut raw, count).await;
}

/// Waits until the server grants claims again.
pub(crate) async fn wait_until_back(store: &RedisSemaphore) {
    eventually("the server grants again", BOUND, async || {
        let permit = store.acquire(Claim::new("back").with_limit(1_000)).await;
        permit.is_ok_and(|permit| !permit.is_degraded())
    })
    .await;
}

/// Acquires permits until the first error.
pub(crate) async fn acquire_until_error(store: &RedisSemaphore, limit: u32) -> Vec<Permit> {
    let mut permits = Vec::new();
    while let Ok(permit) = store.acquire(claim(limit)).await {
        assert!(permits.len() < 1_000, "no limit at all");
        permits.push(permit);
    }
    permits
}

/// Waits until the breaker of a store is open, so that claims are decided at once.
pub(crate) async fn wait_until_open(store: &RedisSemaphore) {
    wait_until_open_for(store, "opens").await;
}

/// Waits until the breaker of the node that has this key is open.
pub(crate) async fn wait_until_open_for(store: &RedisSemaphore, key: &str) {
    eventually("claims are decided at once", BOUND, async || {
        let start = Instant::now();
        drop(store.acquire(Claim::new(key).with_limit(1_000)).await);
        start.elapsed() < Duration::from_millis(20)
    })
    .await;
}
