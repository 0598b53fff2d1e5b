//! Lost calls and lost replies.
//!
//! Promises: P6.

use redis::Script;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use testing::{
    proxy::{Proxy, Seen},
    resp::Raw,
    rig::{BOUND, Rig},
    wait::{eventually, granted_at},
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{AcquireError, Claim, Operate, Permit, Policy, RedisSemaphore, Semaphore};

/// Long enough that no lease ends by itself.
const LEASE: Duration = Duration::from_secs(60);
/// Much shorter than a lease, and than the time until a dead waiter is removed.
const SOON: Duration = Duration::from_secs(5);
const HELD: &str = "semaphore:2:{concurrency:a}:held";

fn claim(key: &str) -> Claim {
    Claim::new(key.to_owned()).with_limit(1)
}

/// Recognises an acquire by the queue of its key and by its arguments.
fn is_acquire(args: &[Vec<u8>]) -> bool {
    let names = |end: &[u8]| args.iter().any(|arg| arg.ends_with(end));
    // The argument after the four keys is a lease in an acquire, and `0` or `1` in a release.
    names(b":a}:queue") && args.get(7).is_some_and(|arg| arg.len() > 1)
}

/// The distinct ids in the acquires that the proxy has seen.
fn ids(proxy: &Proxy) -> HashSet<Vec<u8>> {
    let log = proxy.log();
    let acquires = log.iter().filter(|seen| is_acquire(&seen.args));
    let words = acquires.flat_map(|seen| seen.args.clone());
    // An id has eleven parts.
    let is_id = |word: &Vec<u8>| word.iter().filter(|byte| **byte == b'.').count() == 10;
    words.filter(is_id).collect()
}

async fn rig() -> Rig {
    let timeout = Duration::from_secs(2);
    Rig::new(RedisSemaphore::builder().lease(LEASE).timeout(timeout)).await
}

/// Claims weight 3 of 3 while the first `lost` replies are dropped.
async fn claim_without_replies(
    rig: &Rig,
    lost: usize,
    wait: Duration,
) -> Result<Permit, AcquireError> {
    rig.proxy.clear_log();
    rig.proxy.drop_replies_to(lost, is_acquire);
    let claim = Claim::new("a").with_limit(3).with_weight(3);
    rig.store.acquire(claim.with_wait(wait)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_reply_is_lost_is_granted_once_by_its_second_try() {
    let mut rig = rig().await;
    for wait in [Duration::ZERO, BOUND] {
        let permit = claim_without_replies(&rig, 1, wait)
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
        assert_eq!(ids(&rig.proxy).len(), 1, "the second try had another id");
        assert!(permit.release().await);
        assert_eq!(rig.raw.zcard(HELD).await, 0);
    }
    rig.nothing_is_left(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_all_of_whose_replies_are_lost_is_released() {
    let mut rig = rig().await;
    let failed = claim_without_replies(&rig, usize::MAX, Duration::ZERO).await;
    assert!(
        matches!(failed, Err(AcquireError::Store { .. })),
        "{failed:?}"
    );
    rig.nothing_is_left(SOON).await;
    // Each attempt used the same id, so the claim was granted each time. Until `forward`, replies are still lost.
    assert_eq!(ids(&rig.proxy).len(), 1);
    rig.proxy.forward();
    eventually("the key is free", SOON, async || {
        let claim = Claim::new("a").with_limit(3).with_weight(3);
        rig.store.acquire(claim).await.is_ok()
    })
    .await;
}

/// A second revocation would find no such permit.
#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_whose_reply_is_lost_is_an_error_and_is_not_sent_again() {
    let rig = rig().await;
    let permit = rig.store.acquire(claim("a")).await.expect("it is free");
    let (policy, key) = (Policy::DEFAULT, "a".into());
    let usage = rig.store.usage(&policy, &key).await.expect("it answers");
    let id = usage.held[0].id.clone();
    // After this first revocation the server knows the script, so the next call runs it.
    let other = rig.store.acquire(claim("b")).await.expect("it is free");
    let usage = rig
        .store
        .usage(&policy, &"b".into())
        .await
        .expect("it answers");
    let known = rig.store.revoke(&policy, &"b".into(), &usage.held[0].id);
    assert!(known.await.expect("it answers") && timeout(BOUND, other.lost()).await.is_ok());
    let named = id.clone().into_bytes();
    rig.proxy
        .drop_replies_to(1, move |args| args.contains(&named));
    let revoked = rig.store.revoke(&policy, &key, &id).await;
    assert!(revoked.is_err(), "{revoked:?}");
    let is_lost = timeout(BOUND, permit.lost()).await;
    is_lost.expect("it was revoked all the same");
}

const SHORT_LEASE: Duration = Duration::from_secs(2);
/// The longest time that a claim takes under the default timeout.
const CLAIM_TIME: Duration = Duration::from_millis(500);
const KEYS: u64 = 30;
const RELEASE: &str = concat!(
    include_str!("../../../proto/src/verbs/common.lua"),
    include_str!("../../../proto/src/verbs/grant.lua"),
    include_str!("../../../proto/src/verbs/release.lua")
);

/// Recognises a release by the hash of its script, or by the source.
fn is_release(args: &[Vec<u8>]) -> bool {
    let hash = Script::new(RELEASE).get_hash().as_bytes().to_vec();
    args.get(1)
        .is_some_and(|arg| *arg == hash || arg == RELEASE.as_bytes())
}

fn releases(proxy: &Proxy) -> Vec<Seen> {
    let log = proxy.log().into_iter();
    log.filter(|seen| is_release(&seen.args)).collect()
}

/// The end of the last lease. Asserts that each key is held exactly once.
async fn last_end(raw: &mut Raw) -> i64 {
    let mut last = 0;
    for key in 0..KEYS {
        let members = raw
            .zmembers(&format!("semaphore:2:{{concurrency:{key}}}:held"))
            .await;
        assert_eq!(members.len(), 1, "key {key} is free, or held twice");
        last = last.max(members[0].1 as i64);
    }
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_whose_releases_are_lost_are_free_when_their_leases_end_and_tries_are_few() {
    let mut rig = Rig::new(RedisSemaphore::builder().lease(SHORT_LEASE)).await;
    let other = RedisSemaphore::connect(rig.server.url()).await;
    let other = other.expect("it connects");
    let mut permits: Vec<Permit> = Vec::new();
    for key in 0..KEYS {
        permits.push(
            rig.store
                .acquire(claim(&key.to_string()))
                .await
                .expect("there is room"),
        );
    }
    rig.proxy.cut_before(is_release);
    rig.proxy.clear_log();
    let dropped = Instant::now();
    drop(permits);
    sleep(SHORT_LEASE / 2).await;
    let end = last_end(&mut rig.raw).await;
    granted_at(end, &mut rig.raw, async || {
        let mut free = true;
        for key in (0..KEYS).rev() {
            free &= other.acquire(claim(&key.to_string())).await.is_ok();
        }
        free
    })
    .await;
    // After this sleep every lease has ended, so no further release is needed.
    sleep((SHORT_LEASE + CLAIM_TIME * 2).saturating_sub(dropped.elapsed())).await;
    let (tries, connections) = (releases(&rig.proxy).len(), rig.proxy.connections());
    println!("{tries} tries, {connections} connections");
    // Pauses between attempts double, and one call carries the releases of many keys.
    assert!((3..=40).contains(&tries), "{tries} tries");
    assert!(connections <= 4, "{connections} connections");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(releases(&rig.proxy).len(), tries, "releases are still sent");
    rig.proxy.forward();
    let permit = rig.store.acquire(claim("0")).await.expect("it is free");
    assert!(permit.release().await);
}
