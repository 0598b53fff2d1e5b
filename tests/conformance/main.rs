//! One suite for every store: the same claims get the same answers.

mod line;
use testing as support;

use std::{collections::HashSet, time::Duration};
use support::{
    stores::{Store, facts},
    wait::eventually,
};
use tower_semaphore::{AcquireError, Claim, Key, Permit, Semaphore};

/// Generous: nothing here is about time.
pub(crate) const BOUND: Duration = Duration::from_secs(10);

facts! {
    a_key_is_granted_up_to_its_limit_and_no_further
    another_key_is_untouched
    another_policy_is_another_semaphore
    the_last_clone_gives_the_permit_back
    a_heavy_permit_takes_and_gives_back_its_weight
    a_lowered_limit_ends_nobody_and_grants_nothing_until_there_is_room
    a_raised_limit_grants_more
    tokens_grow_even_when_the_key_was_idle
    a_release_tells_whether_the_permit_was_held
    a_release_by_one_clone_counts_for_all
    a_permit_says_what_remained
    a_permit_with_a_bound_ends_then_and_its_holder_is_told
    what_was_dropped_just_now_is_not_in_the_way
    a_dropped_acquire_leaves_nothing_behind
    a_claim_that_no_store_could_grant_is_told_apart
    a_thousand_keys_of_any_bytes_are_distinct
    keys_that_look_like_the_names_of_others_are_distinct
}

mod waiting {
    use super::{facts, line::*};

    facts! {
        a_claim_that_waits_is_granted_when_there_is_room
        waiters_are_granted_in_the_order_in_which_they_came
        a_claim_that_does_not_wait_never_passes_the_line
        a_heavy_head_is_not_starved_by_lighter_claims_behind_it
        one_release_lets_in_all_that_fit
        a_waiter_is_granted_under_its_own_limit
        a_claim_under_a_higher_limit_waits_its_turn
        a_wait_that_is_over_is_told_and_leaves_nothing
        a_full_line_is_told
        as_many_may_wait_as_the_claim_says
        a_waiter_that_is_dropped_leaves_the_line
        a_head_that_is_dropped_lets_the_next_in
        tokens_grow_along_the_line
        ten_thousand_cancels_anywhere_leave_nothing_behind
    }
}

pub(crate) fn claim(key: impl Into<Key>, limit: u32) -> Claim {
    Claim::new(key).with_limit(limit)
}

/// As many permits as are granted at once, 100 at most.
pub(crate) async fn fill(store: &Store, claim: &Claim) -> Vec<Permit> {
    let mut permits = Vec::new();
    while let Ok(permit) = store.acquire(claim.clone()).await {
        permits.push(permit);
        assert!(permits.len() < 100, "no limit in sight");
    }
    permits
}

/// A release is queued by a drop, so what it freed is there soon, not at once.
async fn granted_soon(store: &Store, claim: &Claim) -> Permit {
    let mut permit = None;
    let slot = &mut permit;
    eventually("a permit is granted", BOUND, async || {
        *slot = store.acquire(claim.clone()).await.ok();
        slot.is_some()
    })
    .await;
    permit.expect("it was granted")
}

async fn a_key_is_granted_up_to_its_limit_and_no_further(store: Store) {
    let claim = claim("a", 5);
    let permits = fill(&store, &claim).await;
    assert_eq!(permits.len(), 5);
    let refused = store.acquire(claim).await.expect_err("it is full");
    assert!(matches!(
        refused,
        AcquireError::Full {
            limit: 5,
            held: 5,
            ..
        }
    ));
}

async fn another_key_is_untouched(store: Store) {
    let _permits = fill(&store, &claim("a", 2)).await;
    assert_eq!(fill(&store, &claim("b", 2)).await.len(), 2);
}

async fn another_policy_is_another_semaphore(store: Store) {
    let _permits = fill(&store, &claim("a", 2)).await;
    let other = claim("a", 2).with_policy("uploads");
    assert_eq!(fill(&store, &other).await.len(), 2);
    let same = claim("a", 2).with_policy("concurrency");
    assert_eq!(fill(&store, &same).await.len(), 0);
}

async fn the_last_clone_gives_the_permit_back(store: Store) {
    let claim = claim("a", 1);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    let clone = permit.clone();
    drop(permit);
    assert!(store.acquire(claim.clone()).await.is_err());
    drop(clone);
    drop(granted_soon(&store, &claim).await);
}

async fn a_heavy_permit_takes_and_gives_back_its_weight(store: Store) {
    let heavy = claim("a", 5).with_weight(3);
    let permit = store.acquire(heavy.clone()).await.expect("there is room");
    assert_eq!(permit.remaining(), 2);
    assert!(store.acquire(heavy.clone()).await.is_err());
    assert_eq!(fill(&store, &claim("a", 5)).await.len(), 2);
    drop(permit);
    let all = claim("a", 5).with_weight(5);
    drop(granted_soon(&store, &all).await);
}

async fn a_lowered_limit_ends_nobody_and_grants_nothing_until_there_is_room(store: Store) {
    let mut permits = fill(&store, &claim("a", 5)).await;
    let lowered = claim("a", 2);
    assert!(store.acquire(lowered.clone()).await.is_err());
    while permits.len() > 2 {
        assert!(permits.pop().expect("not empty").release().await);
        assert!(store.acquire(lowered.clone()).await.is_err());
    }
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    assert!(permits.pop().expect("not empty").release().await);
    assert!(store.acquire(lowered).await.is_ok());
}

async fn a_raised_limit_grants_more(store: Store) {
    let _permits = fill(&store, &claim("a", 2)).await;
    assert_eq!(fill(&store, &claim("a", 7)).await.len(), 5);
}

async fn tokens_grow_even_when_the_key_was_idle(store: Store) {
    let claim = claim("a", 2);
    let mut last = 0;
    for _ in 0..50 {
        let permit = store.acquire(claim.clone()).await.expect("there is room");
        assert!(permit.token() > last);
        last = permit.token();
        permit.release().await;
    }
}

async fn a_release_tells_whether_the_permit_was_held(store: Store) {
    let permit = store.acquire(claim("a", 1)).await.expect("there is room");
    let clone = permit.clone();
    assert!(permit.release().await);
    assert!(!clone.release().await);
}

async fn a_release_by_one_clone_counts_for_all(store: Store) {
    let claim = claim("a", 1);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    let clone = permit.clone();
    assert!(permit.release().await);
    let next = store
        .acquire(claim.clone())
        .await
        .expect("there is room again");
    drop(clone);
    assert!(
        store.acquire(claim).await.is_err(),
        "a drop took the place of another"
    );
    drop(next);
}

async fn a_permit_says_what_remained(store: Store) {
    let permits = fill(&store, &claim("a", 3)).await;
    let remaining: Vec<u32> = permits.iter().map(Permit::remaining).collect();
    assert_eq!(remaining, [2, 1, 0]);
    assert!(permits.iter().all(|permit| permit.limit() == 3));
}

async fn a_permit_with_a_bound_ends_then_and_its_holder_is_told(store: Store) {
    let claim = claim("a", 1);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    permit.end_after(Duration::from_millis(20));
    tokio::time::timeout(BOUND, permit.lost())
        .await
        .expect("it is told");
    assert!(permit.is_lost());
    drop(granted_soon(&store, &claim).await);
    assert!(!permit.release().await);
}

async fn what_was_dropped_just_now_is_not_in_the_way(store: Store) {
    let claim = claim("a", 1);
    for round in 0..2_000 {
        let permit = store.acquire(claim.clone()).await;
        assert!(permit.is_ok(), "refused in round {round}: {permit:?}");
    }
}

async fn a_dropped_acquire_leaves_nothing_behind(store: Store) {
    let claim = claim("a", 5);
    for polls in 0..50 {
        let mut acquire = store.acquire(claim.clone());
        for _ in 0..polls % 4 {
            if futures_util::poll!(&mut acquire).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    eventually("all is free again", BOUND, async || {
        fill(&store, &claim).await.len() == 5
    })
    .await;
}

async fn a_claim_that_no_store_could_grant_is_told_apart(store: Store) {
    let full = |answer| matches!(answer, Err(AcquireError::Full { .. }));
    assert!(full(store.acquire(claim("a", 0)).await));
    assert!(full(store.acquire(claim("a", 0).with_weight(3)).await));

    let invalid = |answer| matches!(answer, Err(AcquireError::Invalid(_)));
    assert!(invalid(store.acquire(claim("a", 2).with_weight(3)).await));
    assert!(invalid(store.acquire(claim("", 1)).await));
    assert!(invalid(store.acquire(Claim::new("a")).await));
    assert!(invalid(store.acquire(claim("a", 1).with_weight(0)).await));
    assert!(invalid(
        store.acquire(claim("a", 9_999).with_weight(1_001)).await
    ));
}

/// Random bytes, lengths from 1 to 64 KiB, out of an alphabet of what breaks names.
fn odd_keys(count: usize) -> HashSet<Vec<u8>> {
    let alphabet = b"{}:#%\0\r\n\xff\xc3a*[]? \"\\-._@+";
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut keys = HashSet::new();
    while keys.len() < count {
        let length = 1 + random() % [3, 8, 70, 65_536][random() % 4];
        keys.insert(
            (0..length)
                .map(|_| alphabet[random() % alphabet.len()])
                .collect(),
        );
    }
    keys
}

async fn a_thousand_keys_of_any_bytes_are_distinct(store: Store) {
    let mut permits = Vec::new();
    for key in odd_keys(1_000) {
        let claim = claim(key, 1);
        permits.push(
            store
                .acquire(claim.clone())
                .await
                .expect("another key's permit is in the way"),
        );
        assert!(
            store.acquire(claim).await.is_err(),
            "it is not the same key"
        );
    }
}

async fn keys_that_look_like_the_names_of_others_are_distinct(store: Store) {
    let keys = [
        "a",
        "A",
        "}x",
        "a}b",
        "{a}",
        "a:held",
        "*",
        "[a]",
        "redis.call('FLUSHALL')",
        "%61",
    ];
    let hash_of_a = "#ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
    let composed = ["\u{e9}", "e\u{301}"];
    let mut permits = Vec::new();
    for key in keys.into_iter().chain([hash_of_a]).chain(composed) {
        let filled = fill(&store, &claim(key, 1)).await;
        assert_eq!(filled.len(), 1, "{key}");
        permits.extend(filled);
    }
}
