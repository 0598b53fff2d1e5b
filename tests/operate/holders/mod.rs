//! How operators see the holders of permits and revoke permits. Each fact (a test) runs with every store.

mod counted;
mod forged;
#[cfg(feature = "redis")]
mod in_redis;
mod load;
mod paused;
mod revoked;
mod shown;

use futures_util::StreamExt;
use std::{collections::HashSet, time::Duration};
use testing::stores::{Store, facts_of_operators};
use testing::wait::eventually;
use tokio::{task::JoinHandle, time::timeout};
use tower_semaphore::{
    AcquireError, Claim, Key, Permit, Policy,
    semaphore::{PermitInfo, StoredKey, Usage},
};

/// Generous, for busy machines. No fact here measures time.
const BOUND: Duration = Duration::from_secs(20);

fn claim(key: impl Into<Key>, limit: u32) -> Claim {
    Claim::new(key).with_limit(limit)
}

fn waiting(key: impl Into<Key>, limit: u32) -> Claim {
    claim(key, limit).with_wait(Duration::from_secs(60))
}

async fn granted(store: &Store, claim: &Claim) -> Permit {
    let answer = store.acquire(claim.clone()).await;
    answer.expect("there is room")
}

async fn usage(store: &Store, key: impl Into<Key>) -> Usage {
    let usage = store.usage(&Policy::DEFAULT, &key.into()).await;
    usage.expect("the store answers")
}

async fn revoke(store: &Store, key: impl Into<Key>, id: &str) -> bool {
    let revoked = store.revoke(&Policy::DEFAULT, &key.into(), id).await;
    revoked.expect("the store answers")
}

/// Returns the usage once it is as expected, because a drop only queues the release.
async fn wait_for_usage(
    store: &Store,
    key: &str,
    what: &str,
    is_so: impl Fn(&Usage) -> bool,
) -> Usage {
    let mut last = None;
    let slot = &mut last;
    eventually(what, BOUND, async || {
        let usage = usage(store, key).await;
        let is_so = is_so(&usage);
        *slot = Some(usage);
        is_so
    })
    .await;
    last.expect("the usage was read")
}

/// The first permit that the usage of `a` shows.
async fn first(store: &Store) -> PermitInfo {
    usage(store, "a").await.held.remove(0)
}

type Waiter = JoinHandle<Result<Permit, AcquireError>>;

/// A claim that waits behind `before` others, and the waiter that usage shows for it.
async fn queued(store: &Store, claim: Claim, before: usize) -> (Waiter, PermitInfo) {
    let waiter = tokio::spawn(store.acquire(claim));
    let usage = wait_for_usage(store, "a", "it waits", |usage| {
        usage.waiting.len() == before + 1
    })
    .await;
    // With a head start the waiter need not be the last one.
    (waiter, usage.waiting[before].clone())
}

/// The answer to a claim that waits.
async fn answer(waiter: Waiter) -> Result<Permit, AcquireError> {
    let answer = timeout(BOUND, waiter).await;
    answer.expect("it is answered").expect("no panic")
}

fn assert_revoked(answer: &Result<Permit, AcquireError>) {
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
}

pub(crate) async fn until_notified(permit: &Permit) {
    let lost = timeout(BOUND, permit.lost()).await;
    lost.expect("the holder is notified");
}

async fn keys(store: &Store, policy: &Policy) -> Vec<StoredKey> {
    let keys = store.keys(policy);
    keys.map(|key| key.expect("the store answers"))
        .collect()
        .await
}

fn ids(infos: &[PermitInfo]) -> Vec<&str> {
    infos.iter().map(|info| &*info.id).collect()
}

fn distinct(ids: &[&str]) -> usize {
    ids.iter().collect::<HashSet<_>>().len()
}
