//! Claims that are dropped at every moment of their way.

use std::time::Duration;
use testing::rig::Rig;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

/// Long enough that nothing in this test ends by itself.
const LEASE: Duration = Duration::from_secs(60);
/// Each way.
const DELAY: Duration = Duration::from_millis(5);
/// Moments at which claims are dropped.
const STEPS: u32 = 50;
/// A second, and what a busy machine takes.
const SOON: Duration = Duration::from_secs(1 + 2);

fn claim(key: &str, wait: u64) -> Claim {
    let claim = Claim::new(key.to_owned()).with_limit(1);
    claim.with_wait(Duration::from_secs(wait))
}

/// Permits of another store.
async fn fill(store: &RedisSemaphore, keys: &str) -> Vec<Permit> {
    let mut permits = Vec::new();
    for step in 0..STEPS {
        let permit = store.acquire(claim(&format!("{keys}{step}"), 0)).await;
        permits.push(permit.expect("it is free"));
    }
    permits
}

/// Drops claims within this time: for free keys, for full keys, and for keys that get free meanwhile.
/// Returns how many were answered before.
async fn drop_within(span: Duration, rig: &Rig, other: &RedisSemaphore) -> usize {
    let (_full, freed) = (fill(other, "full").await, fill(other, "freed").await);
    rig.proxy.delay(DELAY, DELAY);
    let mut dropped = JoinSet::new();
    for (keys, wait) in [("free", 0), ("full", 10), ("freed", 10)] {
        for step in 0..STEPS {
            let acquire = rig.store.acquire(claim(&format!("{keys}{step}"), wait));
            dropped.spawn(async move { timeout(span / STEPS * step, acquire).await.is_ok() });
        }
    }
    sleep(span / 3).await;
    drop(freed);
    let answered = dropped.join_all().await;
    rig.proxy.delay(Duration::ZERO, Duration::ZERO);
    answered.into_iter().filter(|answered| *answered).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_dropped_at_any_moment_leaves_nothing_a_second_later() {
    let patient = || RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 30);
    let mut rig = Rig::new(patient()).await;
    let other = patient().connect(rig.server.url()).await;
    let other = other.expect("it connects");
    // From well before the first answer until well after it, however busy the machine is.
    let mut span = DELAY * 8;
    while drop_within(span, &rig, &other).await < STEPS as usize {
        rig.nothing_is_left(SOON).await;
        span *= 2;
        assert!(span < LEASE / 3, "claims are not answered");
    }
    rig.nothing_is_left(SOON).await;
    println!("in {span:?} all of their way");
}
