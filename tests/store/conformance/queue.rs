//! The queue of a key, in every store. `mod.rs` lists these facts.
//!
//! Promises: P12, P14, P15.

use super::{BOUND, Store, claim, fill};
use std::time::Duration;
use testing::{stores, wait::eventually};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower_semaphore::{AcquireError, Claim, Permit, Semaphore};

pub(crate) type Waiter = JoinHandle<Result<Permit, AcquireError>>;

/// Waits until `count` claims wait for `a`.
pub(crate) async fn until_waiting(store: &Store, count: u32) {
    until_queued(store, &claim("a", 1), count).await;
}

/// Waits until the queue of `claim` has `count` waiters.
pub(crate) async fn until_queued(store: &Store, claim: &Claim, count: u32) {
    stores::until_queued(store, claim, count, BOUND * 4).await;
}

/// Spawns a claim that waits, and returns once the queue has `count` waiters.
pub(crate) async fn waiter(store: &Store, claim: Claim, count: u32) -> Waiter {
    let waiter = tokio::spawn(store.acquire(claim.with_wait(BOUND)));
    until_waiting(store, count).await;
    waiter
}

pub(crate) async fn granted(waiter: Waiter) -> Permit {
    waiter
        .await
        .expect("the task did not panic")
        .expect("the waiter is granted")
}

pub(crate) async fn a_permit_reports_how_long_its_claim_waited(store: Store) {
    const HELD: Duration = Duration::from_millis(300);
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let start = Instant::now();
    let waiter = waiter(&store, claim("a", 1), 1).await;
    sleep(HELD).await;
    drop(held);
    let permit = granted(waiter).await;
    assert!(permit.waited() >= HELD && permit.waited() <= start.elapsed());
    assert_eq!(permit.clone().waited(), permit.waited());
}

pub(crate) async fn waiters_are_granted_in_the_order_of_arrival_and_their_tokens_grow(
    store: Store,
) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let mut waiters = Vec::new();
    for count in 1..=20 {
        waiters.push(waiter(&store, claim("a", 1), count).await);
    }
    let mut last = held.token();
    drop(held);
    for (left, waiter) in (0..20).rev().zip(waiters) {
        let permit = granted(waiter).await;
        assert!(permit.token() > last);
        last = permit.token();
        until_waiting(&store, left).await;
        drop(permit);
    }
}

pub(crate) async fn a_claim_that_does_not_wait_never_passes_the_queue(store: Store) {
    let _held = store.acquire(claim("a", 2)).await.expect("there is room");
    let heavy = waiter(&store, claim("a", 2).with_weight(2), 1).await;
    let refused = store
        .acquire(claim("a", 2))
        .await
        .expect_err("the queue is not empty");
    assert!(
        matches!(
            refused,
            AcquireError::Full {
                limit: 2,
                held: 1,
                ..
            }
        ),
        "{refused:?}"
    );
    heavy.abort();
}

pub(crate) async fn a_heavy_head_is_not_starved_by_lighter_claims_behind_it(store: Store) {
    let first = store.acquire(claim("a", 3)).await.expect("there is room");
    let second = store.acquire(claim("a", 3)).await.expect("there is room");
    let heavy = waiter(&store, claim("a", 3).with_weight(3), 1).await;
    let light = waiter(&store, claim("a", 3), 2).await;
    first.release().await;
    assert!(!light.is_finished());
    second.release().await;
    let heavy = granted(heavy).await;
    assert!(!light.is_finished());
    heavy.release().await;
    drop(granted(light).await);
}

pub(crate) async fn one_release_grants_all_waiters_that_fit(store: Store) {
    let heavy = store
        .acquire(claim("a", 3).with_weight(3))
        .await
        .expect("there is room");
    let mut waiters = Vec::new();
    for count in 1..=4 {
        waiters.push(waiter(&store, claim("a", 3), count).await);
    }
    drop(heavy);
    let last = waiters.pop().expect("there are four");
    let mut permits = Vec::new();
    for waiter in waiters {
        permits.push(granted(waiter).await);
    }
    assert!(!last.is_finished());
    drop(permits);
    drop(granted(last).await);
}

pub(crate) async fn a_waiter_is_granted_under_its_own_limit(store: Store) {
    let mut held = fill(&store, &claim("a", 5)).await;
    let modest = waiter(&store, claim("a", 2), 1).await;
    while held.len() > 2 {
        held.pop().expect("not empty").release().await;
        assert!(!modest.is_finished());
    }
    held.pop().expect("not empty").release().await;
    drop(granted(modest).await);
}

pub(crate) async fn a_claim_with_a_higher_limit_does_not_pass_the_head(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let first = waiter(&store, claim("a", 1), 1).await;
    // The second claim would fit under its own limit, but it is not the queue's head.
    let second = waiter(&store, claim("a", 2), 2).await;
    assert!(!second.is_finished());
    drop(held);
    let first = granted(first).await;
    drop(granted(second).await);
    drop(first);
}

pub(crate) async fn a_wait_that_times_out_leaves_nothing_behind(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let short = claim("a", 1).with_wait(Duration::from_millis(30));
    let over = store
        .acquire(short)
        .await
        .expect_err("no permit was released");
    assert!(matches!(over, AcquireError::TimedOut { .. }), "{over:?}");
    until_waiting(&store, 0).await;
    assert!(held.release().await);
    eventually("the key is free", BOUND, async || {
        store.acquire(claim("a", 1)).await.is_ok()
    })
    .await;
}

pub(crate) async fn a_claim_that_finds_as_many_waiting_as_it_allows_is_refused(store: Store) {
    let _held = store.acquire(claim("a", 1)).await.expect("there is room");
    let none = claim("a", 1).with_wait(BOUND).with_max_waiting(0);
    let refused = store.acquire(none).await.expect_err("no claim may wait");
    assert!(
        matches!(refused, AcquireError::QueueFull { .. }),
        "{refused:?}"
    );
    let _waiter = waiter(&store, claim("a", 1), 1).await;
    let alone = claim("a", 1).with_wait(BOUND).with_max_waiting(1);
    let refused = store
        .acquire(alone)
        .await
        .expect_err("one claim waits already");
    assert!(
        matches!(refused, AcquireError::QueueFull { .. }),
        "{refused:?}"
    );
    let _other = waiter(&store, claim("a", 1).with_max_waiting(9), 2).await;
}

#[tokio::test]
async fn a_store_in_memory_bounds_the_waiters_of_all_keys_together() {
    let store = tower_semaphore::MemorySemaphore::builder()
        .max_waiting_total(1)
        .build();
    let mut held = Vec::new();
    for key in ["a", "b"] {
        held.push(store.acquire(claim(key, 1)).await.expect("there is room"));
    }
    let first = store.acquire(claim("a", 1).with_wait(BOUND));
    let refused = store.acquire(claim("b", 1).with_wait(BOUND)).await;
    assert!(
        matches!(refused, Err(AcquireError::Overloaded)),
        "{refused:?}"
    );
    drop(first);
    let short = claim("b", 1).with_wait(Duration::from_millis(1));
    let over = store.acquire(short).await;
    assert!(
        matches!(over, Err(AcquireError::TimedOut { .. })),
        "{over:?}"
    );
}
