//! The server grants, and its reply is lost.

use std::{collections::HashSet, time::Duration};
use testing::{
    proxy::Proxy,
    rig::{BOUND, Rig},
    wait::eventually,
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(60);
/// Much less than a lease, or than the time that a waiter counts as alive.
const SOON: Duration = Duration::from_secs(5);
const HELD: &str = "semaphore:{concurrency:a}:held";

/// An acquire names the queue of its key, and says how a permit is to be named and counted.
fn is_acquire(args: &[Vec<u8>]) -> bool {
    let names = |end: &[u8]| args.iter().any(|arg| arg.ends_with(end));
    // A release has a 0 or a 1 after the four keys, and an acquire a lease.
    names(b":a}:queue") && args.get(7).is_some_and(|arg| arg.len() > 1)
}

/// The permits that acquires named.
fn ids(proxy: &Proxy) -> HashSet<Vec<u8>> {
    let log = proxy.log();
    let acquires = log.iter().filter(|seen| is_acquire(&seen.args));
    let words = acquires.flat_map(|seen| seen.args.clone());
    let is_id = |word: &Vec<u8>| word.iter().filter(|byte| **byte == b'.').count() == 5;
    words.filter(is_id).collect()
}

async fn rig() -> Rig {
    let timeout = Duration::from_secs(2);
    Rig::new(RedisSemaphore::builder().lease(LEASE).timeout(timeout)).await
}

/// A claim for weight 3 of 3 whose first replies are lost.
async fn claim(rig: &Rig, lost: usize, wait: Duration) -> Result<Permit, AcquireError> {
    rig.proxy.clear_log();
    rig.proxy.drop_replies_to(lost, is_acquire);
    let claim = Claim::new("a").with_limit(3).with_weight(3);
    rig.store.acquire(claim.with_wait(wait)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_reply_is_lost_is_granted_once_by_its_second_try() {
    let mut rig = rig().await;
    for wait in [Duration::ZERO, BOUND] {
        let permit = claim(&rig, 1, wait)
            .await
            .expect("its own units are no obstacle");
        assert_eq!(rig.raw.zcard(HELD).await, 3);
        assert!(
            rig.proxy
                .log()
                .iter()
                .filter(|seen| is_acquire(&seen.args))
                .count()
                >= 2
        );
        assert_eq!(ids(&rig.proxy).len(), 1, "the second try had another name");
        assert!(permit.release().await);
        assert_eq!(rig.raw.zcard(HELD).await, 0);
    }
    rig.nothing_is_left(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_all_of_whose_replies_are_lost_is_released() {
    let mut rig = rig().await;
    let failed = claim(&rig, usize::MAX, Duration::ZERO).await;
    assert!(
        matches!(failed, Err(AcquireError::Store { .. })),
        "{failed:?}"
    );
    rig.nothing_is_left(SOON).await;
    // The claim was granted each time, and its replies are still lost.
    assert_eq!(ids(&rig.proxy).len(), 1);
    rig.proxy.forward();
    eventually("the key is free", SOON, async || {
        let claim = Claim::new("a").with_limit(3).with_weight(3);
        rig.store.acquire(claim).await.is_ok()
    })
    .await;
}
