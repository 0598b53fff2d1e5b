//! Who holds what, and how a permit is taken back: the same facts for every store.

mod between;
mod every_store;
mod forged;
#[cfg(feature = "redis")]
mod in_redis;
mod ledger;
mod resized;
mod revoked;
mod shown;

use every_store::{Store, facts};
use futures_util::StreamExt;
use std::{collections::HashSet, time::Duration};
use testing::wait::eventually;
use tower_semaphore::{
    Claim, Key, Permit, Policy,
    semaphore::{PermitInfo, StoredKey, Usage},
};

/// Generous, for busy machines: no fact here is about time.
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

/// The usage, once it is as expected: a drop only queues the release.
async fn shown(store: &Store, key: &str, what: &str, is_so: impl Fn(&Usage) -> bool) -> Usage {
    let mut last = None;
    let slot = &mut last;
    eventually(what, BOUND, async || {
        let usage = usage(store, key).await;
        let is_so = is_so(&usage);
        *slot = Some(usage);
        is_so
    })
    .await;
    last.expect("it was asked")
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
