//! The order of claims with head starts, in every store. A claim with a head start waits in the queue as if it had
//! arrived that much earlier.
//!
//! Promises: P12.

use super::{
    Store, claim,
    queue::{granted, until_queued, waiter},
    several_waiting::spawn,
};
use std::time::{Duration, Instant};
use testing::{levels::claims, stores::facts};
use tower_semaphore::{AcquireError, Claim, Semaphore};

facts! {
    a_claim_that_has_waited_for_longer_than_the_head_start_is_not_passed
    equal_head_starts_are_first_come_first_served
    a_light_claim_with_a_head_start_passes_a_heavy_head_that_does_not_fit
    a_queue_that_is_full_of_others_has_room_for_a_head_start
}

/// Longer than any of these tests.
pub(crate) const HEAD_START: Duration = Duration::from_secs(60);

fn batch() -> Claim {
    claim("a", 1)
}

fn interactive() -> Claim {
    batch().with_head_start(HEAD_START)
}

async fn a_claim_that_has_waited_for_longer_than_the_head_start_is_not_passed(store: Store) {
    let head_start = Duration::from_millis(300);
    let held = store.acquire(batch()).await.expect("there is room");
    let first = waiter(&store, batch(), 1).await;
    let arrived = Instant::now();
    // The sleep is the point of this test, which is about elapsed time.
    tokio::time::sleep(head_start + Duration::from_millis(100)).await;
    let later = waiter(&store, batch().with_head_start(head_start), 2).await;
    assert!(arrived.elapsed() > head_start);
    drop(held);
    for waiter in [first, later] {
        assert!(granted(waiter).await.release().await);
    }
}

async fn equal_head_starts_are_first_come_first_served(store: Store) {
    let held = store.acquire(batch()).await.expect("there is room");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for number in 0..5 {
        without.push(waiter(&store, batch(), number * 2 + 1).await);
        let second = waiter(&store, interactive(), number * 2 + 2).await;
        with.push(second);
    }
    drop(held);
    for waiter in with.into_iter().chain(without) {
        assert!(granted(waiter).await.release().await);
    }
}

async fn a_light_claim_with_a_head_start_passes_a_heavy_head_that_does_not_fit(store: Store) {
    let limit = claim("a", 3);
    let held = store.acquire(limit.clone().with_weight(2)).await;
    let held = held.expect("there is room");
    let heavy = waiter(&store, limit.clone().with_weight(3), 1).await;
    let light = limit.with_head_start(HEAD_START).with_wait(HEAD_START);
    let light = store.acquire(light).await.expect("one unit is free");
    assert!(held.release().await);
    assert!(!heavy.is_finished());
    assert!(light.release().await);
    drop(granted(heavy).await);
}

/// A claim's bound on the queue counts only the waiters ahead of it.
async fn a_queue_that_is_full_of_others_has_room_for_a_head_start(store: Store) {
    let held = store.acquire(batch()).await.expect("there is room");
    let two = |claim: Claim| claim.with_max_waiting(2);
    let first = waiter(&store, batch(), 1).await;
    let second = waiter(&store, batch(), 2).await;
    let third = store.acquire(two(batch()).with_wait(HEAD_START)).await;
    assert!(
        matches!(third, Err(AcquireError::QueueFull { .. })),
        "{third:?}"
    );

    let mut passing = Vec::new();
    for number in 3..=4 {
        passing.push(waiter(&store, two(interactive()), number).await);
    }
    let third = store
        .acquire(two(interactive()).with_wait(HEAD_START))
        .await;
    assert!(
        matches!(third, Err(AcquireError::QueueFull { .. })),
        "{third:?}"
    );
    let none = batch().with_max_waiting(0).with_wait(HEAD_START);
    let none = store.acquire(none).await;
    assert!(
        matches!(none, Err(AcquireError::QueueFull { .. })),
        "{none:?}"
    );
    drop(held);
    for waiter in passing.into_iter().chain([first, second]) {
        assert!(granted(waiter).await.release().await);
    }
}

pub(crate) async fn a_head_start_counts_at_every_limit(store: Store) {
    for full in 0..3 {
        let claims = claims("ann", [3; 3]);
        let full_one = claims[full].clone().with_limit(1);
        let held = store.acquire(full_one.clone()).await;
        let held = held.expect("there is room");
        let mut batch = claims.clone();
        batch[full] = full_one.clone();
        let interactive = batch.clone().map(|claim| claim.with_head_start(HEAD_START));
        let batch = spawn(&store, &batch);
        until_queued(&store, &full_one, 1).await;
        let interactive = spawn(&store, &interactive);
        until_queued(&store, &full_one, 2).await;
        drop(held);
        for waiter in [interactive, batch] {
            assert!(granted(waiter).await.release().await);
        }
    }
}
