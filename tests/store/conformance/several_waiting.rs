//! Several limits at once, with waiting, in every store. `several_limits.rs` lists these facts.

use super::{
    BOUND, Store, fill,
    queue::{Waiter, granted, until_queued},
    several::{held, is_full, until_held},
};
use std::time::Duration;
use testing::levels::claims;
use tower_semaphore::{Claim, Claims, Semaphore};

fn waiting(claims: &[Claim], wait: Duration) -> Claims {
    let waiting = claims.iter().map(|claim| claim.clone().with_wait(wait));
    waiting.collect()
}

/// Spawns a task that waits for all claims together.
pub(crate) fn spawn(store: &Store, claims: &[Claim]) -> Waiter {
    tokio::spawn(store.acquire_all(waiting(claims, BOUND)))
}

pub(crate) async fn a_claim_that_waits_keeps_the_narrower_limits_and_joins_the_first_full_queue(
    store: Store,
) {
    let claims = claims("ann", [2, 2, 2]);
    for full in 0..3 {
        let permits = fill(&store, &claims[full]).await;
        let waiter = spawn(&store, &claims);
        until_queued(&store, &claims[full], 1).await;
        let mut expected = [1; 3];
        expected[full] = 2;
        expected[full + 1..].fill(0);
        assert_eq!(held(&store, &claims).await, expected, "{full}");
        assert!(!waiter.is_finished());
        drop(permits);
        let permit = granted(waiter).await;
        assert_eq!(permit.levels().len(), 3);
        until_held(&store, &claims, &[1, 1, 1]).await;
        permit.release().await;
    }
    assert_eq!(held(&store, &claims).await, [0, 0, 0]);
}

pub(crate) async fn a_claim_goes_from_one_queue_to_the_next(store: Store) {
    let claims = claims("ann", [1, 1, 1]);
    let mut permits = Vec::new();
    for claim in &claims {
        permits.push(store.acquire(claim.clone()).await.expect("there is room"));
    }
    let waiter = spawn(&store, &claims);
    for (claim, permit) in claims.iter().zip(permits) {
        until_queued(&store, claim, 1).await;
        assert!(!waiter.is_finished());
        assert!(permit.release().await);
    }
    let permit = granted(waiter).await;
    assert_eq!(held(&store, &claims).await, [1, 1, 1]);
    assert!(permit.release().await);
    assert_eq!(held(&store, &claims).await, [0, 0, 0]);
}

pub(crate) async fn a_claim_cancelled_at_any_limit_leaves_nothing_behind(store: Store) {
    let claims = claims("ann", [1, 1, 1]);
    for full in 0..3 {
        let permit = store.acquire(claims[full].clone()).await;
        let permit = permit.expect("there is room");
        let cancelled = spawn(&store, &claims);
        until_queued(&store, &claims[full], 1).await;
        let next = spawn(&store, &claims);
        // The second waits behind the first: at the full limit, or at a narrower limit that the first keeps.
        until_queued(&store, &claims[0], if full == 0 { 2 } else { 1 }).await;
        cancelled.abort();
        assert!(cancelled.await.is_err(), "it waits");
        permit.release().await;
        let permit = granted(next).await;
        assert_eq!(held(&store, &claims).await, [1, 1, 1]);
        assert!(permit.release().await);
    }
    assert_eq!(held(&store, &claims).await, [0, 0, 0]);
    // The queues are empty as well.
    assert!(store.acquire_all(claims.into()).await.is_ok());
}

pub(crate) async fn a_wait_that_is_over_names_the_limit_and_leaves_nothing_behind(store: Store) {
    let claims = claims("ann", [1, 1, 1]);
    for full in 0..3 {
        let permit = store.acquire(claims[full].clone()).await;
        let permit = permit.expect("there is room");
        let short = waiting(&claims, Duration::from_millis(30));
        let over = store.acquire_all(short).await;
        let error = over.expect_err("no permit was released");
        assert!(is_full(&error, &claims[full], 1), "{full}: {error:?}");
        let mut expected = [0; 3];
        expected[full] = 1;
        until_held(&store, &claims, &expected).await;
        assert!(permit.release().await);
    }
    assert!(store.acquire_all(claims.into()).await.is_ok());
}

pub(crate) async fn a_full_queue_refuses_and_leaves_nothing_behind(store: Store) {
    let [account, route, fleet] = claims("ann", [1, 1, 1]);
    let _held = store.acquire(fleet.clone()).await.expect("there is room");
    let _first = tokio::spawn(store.acquire(fleet.clone().with_wait(BOUND)));
    until_queued(&store, &fleet, 1).await;
    let claims = [account, route, fleet.with_max_waiting(1)];
    let refused = store.acquire_all(waiting(&claims, BOUND)).await;
    let error = refused.expect_err("one claim waits already");
    assert!(is_full(&error, &claims[2], 1), "{error:?}");
    until_held(&store, &claims, &[0, 0, 1]).await;
}

pub(crate) async fn the_queue_of_a_wide_limit_is_in_the_order_of_arrival_across_accounts(
    store: Store,
) {
    let fleet = claims("", [1, 9, 1])[2].clone();
    let permit = store.acquire(fleet.clone()).await.expect("there is room");
    let mut waiters = Vec::new();
    for number in 0..5 {
        waiters.push(spawn(
            &store,
            &claims(&format!("account-{number}"), [1, 9, 1]),
        ));
        until_queued(&store, &fleet, number + 1).await;
    }
    permit.release().await;
    for waiter in waiters {
        assert!(granted(waiter).await.release().await);
    }
}
