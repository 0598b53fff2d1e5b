//! One suite for every store: equal claims get equal answers. `facts!` makes each listed function a test of each store.
//!
//! Promises: P1, P2, P5, P7, P10, P14.

mod budgets;
mod cancels;
mod fair;
mod head_starts;
mod keys;
mod pauses;
pub(crate) mod queue;
mod resize;
mod runtimes;
mod several;
mod several_contenders;
mod several_limits;
mod several_waiting;

use keys::*;
use std::time::Duration;
use testing::{
    stores::{Store, facts},
    wait::eventually,
};
use tower_semaphore::{AcquireError, Claim, Key, Permit, Semaphore};

/// Generous, for busy machines: no test here measures time.
pub(crate) const BOUND: Duration = Duration::from_secs(10);

facts! {
    a_key_is_granted_up_to_its_limit_and_no_further
    another_key_is_untouched
    another_policy_is_another_semaphore
    the_last_clone_releases_the_permit
    a_heavy_permit_acquires_and_releases_its_weight
    a_lowered_limit_ends_no_permit_and_grants_none_until_there_is_room
    a_raised_limit_grants_more
    tokens_grow_even_when_the_key_was_idle
    a_release_by_one_clone_releases_all_clones
    a_permit_reports_the_remaining_units
    a_permit_that_ends_after_its_time_is_lost
    a_permit_dropped_just_before_an_acquire_does_not_count
    a_limit_of_zero_is_full_and_a_wrong_claim_is_invalid
    a_thousand_keys_of_any_bytes_are_distinct
    keys_that_look_like_the_names_of_other_keys_are_distinct
}

mod moving {
    use super::{facts, runtimes::*};

    facts! {
        a_claim_waits_on_when_its_runtime_has_ended
        a_claim_times_out_in_another_runtime
    }
}

mod waiting {
    use super::{cancels::*, facts, queue::*};

    facts! {
        waiters_are_granted_in_the_order_of_arrival_and_their_tokens_grow
        a_permit_reports_how_long_its_claim_waited
        a_claim_that_does_not_wait_never_passes_the_queue
        a_heavy_head_is_not_starved_by_lighter_claims_behind_it
        one_release_grants_all_waiters_that_fit
        a_waiter_is_granted_under_its_own_limit
        a_claim_with_a_higher_limit_does_not_pass_the_head
        a_wait_that_times_out_leaves_nothing_behind
        a_claim_that_finds_as_many_waiting_as_it_allows_is_refused
        a_dropped_waiter_leaves_the_queue
        the_next_waiter_is_granted_when_the_head_is_dropped
        ten_thousand_cancels_anywhere_leave_nothing_behind
    }
}

pub(crate) fn claim(key: impl Into<Key>, limit: u32) -> Claim {
    Claim::new(key).with_limit(limit)
}

/// Acquires permits until the first refusal, at most 100.
pub(crate) async fn fill(store: &Store, claim: &Claim) -> Vec<Permit> {
    let mut permits = Vec::new();
    while let Ok(permit) = store.acquire(claim.clone()).await {
        permits.push(permit);
        assert!(permits.len() < 100, "the limit is not enforced");
    }
    permits
}

/// Acquires a permit once the key has room. A drop only queues the release, so the room can take a moment.
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

async fn the_last_clone_releases_the_permit(store: Store) {
    let claim = claim("a", 1);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    let clone = permit.clone();
    drop(permit);
    assert!(store.acquire(claim.clone()).await.is_err());
    drop(clone);
    drop(granted_soon(&store, &claim).await);
}

async fn a_heavy_permit_acquires_and_releases_its_weight(store: Store) {
    let heavy = claim("a", 5).with_weight(3);
    let permit = store.acquire(heavy.clone()).await.expect("there is room");
    assert_eq!(permit.remaining(), 2);
    assert!(store.acquire(heavy.clone()).await.is_err());
    assert_eq!(fill(&store, &claim("a", 5)).await.len(), 2);
    drop(permit);
    let all = claim("a", 5).with_weight(5);
    drop(granted_soon(&store, &all).await);
}

async fn a_lowered_limit_ends_no_permit_and_grants_none_until_there_is_room(store: Store) {
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
    let mut last = None;
    for _ in 0..50 {
        let permit = store.acquire(claim.clone()).await.expect("there is room");
        assert!(permit.token() > last);
        last = permit.token();
        permit.release().await;
    }
}

async fn a_release_by_one_clone_releases_all_clones(store: Store) {
    let claim = claim("a", 1);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    let clone = permit.clone();
    assert!(permit.release().await);
    let next = store
        .acquire(claim.clone())
        .await
        .expect("there is room again");
    assert!(!clone.clone().release().await, "it was released before");
    drop(clone);
    assert!(
        store.acquire(claim).await.is_err(),
        "a released clone released another permit"
    );
    drop(next);
}

async fn a_permit_reports_the_remaining_units(store: Store) {
    let permits = fill(&store, &claim("a", 3)).await;
    let remaining: Vec<u32> = permits.iter().map(Permit::remaining).collect();
    assert_eq!(remaining, [2, 1, 0]);
    assert!(permits.iter().all(|permit| permit.limit() == 3));
}

async fn a_permit_that_ends_after_its_time_is_lost(store: Store) {
    let claim = claim("a", 1);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    permit.end_after(Duration::from_millis(20));
    tokio::time::timeout(BOUND, permit.lost())
        .await
        .expect("the loss is reported");
    assert!(permit.is_lost());
    drop(granted_soon(&store, &claim).await);
    assert!(!permit.release().await);
}

async fn a_permit_dropped_just_before_an_acquire_does_not_count(store: Store) {
    let claim = claim("a", 1);
    for round in 0..2_000 {
        let permit = store.acquire(claim.clone()).await;
        assert!(permit.is_ok(), "refused in round {round}: {permit:?}");
    }
}

async fn a_limit_of_zero_is_full_and_a_wrong_claim_is_invalid(store: Store) {
    let full = |answer| matches!(answer, Err(AcquireError::Full { .. }));
    assert!(full(store.acquire(claim("a", 0)).await));
    assert!(full(store.acquire(claim("a", 0).with_weight(3)).await));
    // A claim that may wait is refused too, because a limit of zero can never admit it.
    assert!(full(store.acquire(claim("a", 0).with_wait(BOUND)).await));

    let invalid = |answer| matches!(answer, Err(AcquireError::Invalid { .. }));
    assert!(invalid(store.acquire(claim("a", 2).with_weight(3)).await));
    assert!(invalid(store.acquire(claim("", 1)).await));
    assert!(invalid(store.acquire(Claim::new("a")).await));
    assert!(invalid(store.acquire(claim("a", 1).with_weight(0)).await));
    assert!(invalid(
        store.acquire(claim("a", 9_999).with_weight(1_001)).await
    ));
}
