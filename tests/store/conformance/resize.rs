//! Permits that change their weight, in every store.
//!
//! Promises: P1.

use super::{
    BOUND, Store, claim,
    queue::{granted, waiter},
    several::{held, is_full, until_held},
};
use std::{
    error::Error,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::{levels::claims, stores::facts};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{
    AcquireError, Claim, Permit, PermitLost, Semaphore,
    semaphore::{ClaimError, Level, MAX_WEIGHT},
};

facts! {
    a_smaller_weight_lets_the_next_waiter_in
    a_smaller_weight_wakes_the_head_of_the_queue_and_no_later_waiter
    a_greater_weight_needs_room_and_leaves_the_permit_as_it_was
    a_greater_weight_passes_no_waiter
    no_unit_is_lost_in_any_sequence_of_weights
    several_limits_change_together_or_not_at_all
    the_weight_of_several_limits_is_that_of_the_narrowest_when_one_has_changed_alone
    a_change_that_is_dropped_anywhere_leaves_several_limits_alike
    changes_of_clones_are_made_one_after_the_other
    a_growth_that_a_wide_limit_refuses_does_not_undo_the_smaller_weight_of_a_clone
    after_the_answer_to_a_smaller_weight_or_a_release_the_units_are_free
    a_wrong_weight_or_a_released_permit_is_told_apart_from_a_full_limit
    weights_that_change_under_load_never_exceed_the_limit
}

/// A claim for the key that all tests here use.
fn limited(limit: u32) -> Claim {
    claim("a", limit)
}

async fn acquired(store: &Store, limit: u32, weight: u32) -> Permit {
    let permit = store.acquire(limited(limit).with_weight(weight)).await;
    permit.expect("there is room")
}

async fn a_smaller_weight_lets_the_next_waiter_in(store: Store) {
    let permit = acquired(&store, 5, 5).await;
    let waiting = waiter(&store, limited(5).with_weight(2), 1).await;
    permit.resize(3).await.expect("it becomes lighter");
    let next = granted(waiting).await;
    assert_eq!((permit.weight(), next.weight()), (3, 2));
    assert!(!permit.is_lost());
}

/// Two claims wait, and the second would fit before the first does.
async fn a_smaller_weight_wakes_the_head_of_the_queue_and_no_later_waiter(store: Store) {
    let permit = acquired(&store, 5, 5).await;
    let heavy = waiter(&store, limited(5).with_weight(3), 1).await;
    let light = waiter(&store, limited(5), 2).await;
    permit.resize(4).await.expect("it becomes lighter");
    until_held(&store, slice::from_ref(&limited(5)), &[4]).await;
    assert!(!heavy.is_finished() && !light.is_finished());
    permit.resize(2).await.expect("it becomes lighter");
    let heavy = granted(heavy).await;
    until_held(&store, slice::from_ref(&limited(5)), &[5]).await;
    assert!(!light.is_finished());
    permit.resize(1).await.expect("it becomes lighter");
    assert!(granted(light).await.token() > heavy.token());
}

async fn a_greater_weight_needs_room_and_leaves_the_permit_as_it_was(store: Store) {
    let (permit, other) = (acquired(&store, 5, 2).await, acquired(&store, 5, 2).await);
    permit.resize(3).await.expect("there is room");
    let error = permit.resize(4).await.expect_err("there is none");
    assert!(is_full(&error, &limited(5), 5), "{error:?}");
    assert_eq!(permit.weight(), 3);
    assert!(other.release().await);
    permit.resize(5).await.expect("there is room again");
    assert!(permit.release().await);
    until_held(&store, slice::from_ref(&limited(5)), &[0]).await;
}

async fn a_greater_weight_passes_no_waiter(store: Store) {
    let (permit, other) = (acquired(&store, 5, 2).await, acquired(&store, 5, 2).await);
    let waiting = waiter(&store, limited(5).with_weight(3), 1).await;
    assert!(permit.resize(3).await.is_err(), "a claim waits before it");
    assert!(other.release().await);
    let next = granted(waiting).await;
    assert_eq!(next.weight(), 3);
}

async fn no_unit_is_lost_in_any_sequence_of_weights(store: Store) {
    let permit = acquired(&store, 20, 1).await;
    for weight in [20, 1, 7, 6, 15, 15, 2, 3, 4, 9, 1, 12] {
        permit.resize(weight).await.expect("there is room");
        until_held(&store, slice::from_ref(&limited(20)), &[weight]).await;
    }
    drop(permit);
    until_held(&store, slice::from_ref(&limited(20)), &[0]).await;
}

async fn several_limits_change_together_or_not_at_all(store: Store) {
    let claims = claims("ann", [5, 5, 3]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    permit.resize(3).await.expect("there is room");
    assert_eq!(held(&store, &claims).await, [3, 3, 3]);
    let error = permit
        .resize_at(claims[0].policy(), 6)
        .await
        .expect_err("too heavy");
    assert!(matches!(
        error,
        AcquireError::Invalid {
            source: ClaimError::TooHeavy { .. },
            ..
        }
    ));
    let error = permit.resize(4).await.expect_err("too heavy for the fleet");
    assert!(matches!(error, AcquireError::Invalid { .. }), "{error:?}");
    until_held(&store, &claims, &[3, 3, 3]).await;

    permit.resize(1).await.expect("it becomes lighter");
    let fleet = claims[2].clone().with_weight(2);
    let _other = store.acquire(fleet).await.expect("there is room");
    let error = permit.resize(2).await.expect_err("the fleet is full");
    assert!(is_full(&error, &claims[2], 3), "{error:?}");
    until_held(&store, &claims, &[1, 1, 3]).await;
    assert_eq!(permit.weight(), 1);
}

async fn the_weight_of_several_limits_is_that_of_the_narrowest_when_one_has_changed_alone(
    store: Store,
) {
    let claims = claims("ann", [5, 5, 3]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    permit
        .resize_at(claims[0].policy(), 4)
        .await
        .expect("there is room");
    assert_eq!(held(&store, &claims).await, [4, 1, 1]);
    assert_eq!(permit.weight(), 4);
    permit
        .resize_at(claims[1].policy(), 2)
        .await
        .expect("there is room");
    assert_eq!(permit.weight(), 4);
    permit.resize(3).await.expect("there is room");
    until_held(&store, &claims, &[3, 3, 3]).await;
    assert_eq!(permit.weight(), 3);
}

/// After a dropped change all limits have either the old weight or the new one, and the weight can be changed again.
async fn a_change_that_is_dropped_anywhere_leaves_several_limits_alike(store: Store) {
    let claims = claims("ann", [9, 9, 9]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    for round in 0..60_u32 {
        // 1, 4 or 7.
        let weight = 1 + round % 3 * 3;
        let mut change = Box::pin(permit.resize(weight));
        for _ in 0..round {
            if futures_util::poll!(&mut change).is_ready() {
                break;
            }
            sleep(Duration::from_micros(100)).await;
        }
        drop(change);
        let weights: Vec<_> = permit.levels().map(Level::weight).collect();
        assert_eq!(weights, [weights[0]; 3], "round {round}");
        until_held(&store, &claims, &weights).await;
    }
    permit.resize(2).await.expect("there is room");
    until_held(&store, &claims, &[2, 2, 2]).await;
}

/// For each permit the last change applies, at all of its limits.
async fn changes_of_clones_are_made_one_after_the_other(store: Store) {
    let claims = claims("ann", [9, 9, 9]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    for round in 0..30 {
        let mut tasks = JoinSet::new();
        for task in 0..4 {
            let (clone, weight) = (permit.clone(), 1 + (round * 5 + task * 7) % 9);
            let policy = claims[task as usize % 3].policy().clone();
            tasks.spawn(async move {
                match (round + task) % 4 {
                    0 => clone.resize_at(&policy, weight).await,
                    _ => clone.resize(weight).await,
                }
            });
        }
        for answer in tasks.join_all().await {
            answer.expect("there is room");
        }
        let weights: Vec<_> = permit.levels().map(Level::weight).collect();
        assert_eq!(held(&store, &claims).await, weights, "round {round}");
    }
    permit.resize(2).await.expect("it becomes lighter");
    assert_eq!(held(&store, &claims).await, [2, 2, 2]);
}

async fn a_growth_that_a_wide_limit_refuses_does_not_undo_the_smaller_weight_of_a_clone(
    store: Store,
) {
    let claims = claims("ann", [9, 9, 5]);
    let three = claims.clone().map(|claim| claim.with_weight(3));
    let permit = store.acquire_all(three.into()).await;
    let permit = permit.expect("there is room");
    let fleet = store.acquire(claims[2].clone().with_weight(2)).await;
    let fleet = fleet.expect("there is room");
    let clone = permit.clone();
    let (grown, shrunk) = tokio::join!(permit.resize(5), clone.resize(1));
    let error = grown.expect_err("the fleet is full");
    assert!(is_full(&error, &claims[2], 5), "{error:?}");
    shrunk.expect("a smaller weight needs no room");
    drop(fleet);
    until_held(&store, &claims, &[1, 1, 1]).await;
    assert_eq!(permit.weight(), 1);
}

async fn after_the_answer_to_a_smaller_weight_or_a_release_the_units_are_free(store: Store) {
    for _ in 0..20 {
        let permit = acquired(&store, 9, 2).await;
        permit.resize(9).await.expect("there is room");
        permit.resize(4).await.expect("it becomes lighter");
        let other = acquired(&store, 9, 5).await;
        permit.resize(3).await.expect("it becomes lighter");
        permit.resize(4).await.expect("there is room");
        assert!(permit.release().await && permit.weight() == 0);
        let next = acquired(&store, 9, 4).await;
        assert!(other.release().await && next.release().await);
    }
}

async fn a_wrong_weight_or_a_released_permit_is_told_apart_from_a_full_limit(store: Store) {
    let permit = acquired(&store, 5, 1).await;
    for weight in [0, MAX_WEIGHT + 1, 6] {
        let error = permit.resize(weight).await.expect_err("it is wrong");
        assert!(matches!(error, AcquireError::Invalid { .. }), "{error:?}");
    }
    assert!(permit.release().await);
    let error = permit.resize(2).await.expect_err("it is released");
    let lost = error
        .source()
        .and_then(|source| source.downcast_ref::<PermitLost>());
    assert!(lost.is_some(), "{error:?}");
}

/// The limit of the test under load.
const LIMIT: u32 = 12;

async fn weights_that_change_under_load_never_exceed_the_limit(store: Store) {
    let (units, mut tasks) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    for task in 0..6_u32 {
        let (store, units) = (store.clone(), Arc::clone(&units));
        tasks.spawn(async move {
            let permit = store.acquire(limited(LIMIT).with_wait(BOUND)).await;
            let permit = permit.expect("all tasks leave room");
            let mut own = 1;
            units.fetch_add(own, Relaxed);
            for step in 0..60 {
                let weight = 1 + (task * 7 + step * 5) % 6;
                // A decrease is counted before the call and an increase after it, so the count never exceeds the units
                // held.
                units.fetch_sub(own.saturating_sub(weight), Relaxed);
                if permit.resize(weight).await.is_ok() {
                    let more = weight.saturating_sub(own);
                    let now = units.fetch_add(more, Relaxed) + more;
                    assert!(now <= LIMIT, "{now} units");
                    own = weight;
                } else {
                    assert!(weight > own, "a smaller weight was refused");
                }
            }
            units.fetch_sub(own, Relaxed);
        });
    }
    for _ in 0..2 {
        tasks.spawn(come_and_go(store.clone(), Arc::clone(&units)));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    until_held(&store, slice::from_ref(&limited(LIMIT)), &[0]).await;
}

/// Takes permits from the queue while other tasks change their weights.
async fn come_and_go(store: Store, units: Arc<AtomicU32>) {
    for _ in 0..20 {
        let claim = limited(LIMIT).with_weight(2).with_wait(BOUND);
        let permit = store.acquire(claim).await.expect("others leave room");
        let now = units.fetch_add(2, Relaxed) + 2;
        assert!(now <= LIMIT, "{now} units");
        sleep(Duration::from_millis(1)).await;
        units.fetch_sub(2, Relaxed);
        assert!(permit.release().await);
    }
}
