//! Budgets as operators see and change them.
//!
//! Promises: P24, P26.

use super::*;
use tokio::time::{Instant, advance};
use tower_semaphore::semaphore::StoredKey;

const TOKENS: Policy = Policy::from_static("tokens");

/// A store that lists its holders.
fn listing() -> MemorySemaphore {
    MemorySemaphore::builder().holders(true).build()
}

#[tokio::test(start_paused = true)]
async fn usage_lists_reservations_with_what_is_settled() {
    let store = listing();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    let usage = usage_of(&store, "tokens").await;
    assert_eq!((usage.units, usage.limit), (60, Some(100)));
    let held = &usage.held[0];
    assert_eq!(
        (held.weight, held.window, held.settled),
        (60, Some(MINUTE), None)
    );
    permit.settle("tokens", 25);
    let usage = usage_of(&store, "tokens").await;
    assert_eq!(usage.held[0].settled, Some(25));
    let budget = usage.budgets[0];
    assert_eq!(
        (budget.window, budget.spent, budget.reserved),
        (MINUTE, 25, 35)
    );
    let json = usage.to_json();
    assert!(
        json.contains(r#""budgets":[{"window_ms":60000,"spent":25,"reserved":35}]"#),
        "{json}"
    );
    assert!(json.contains(r#""window_ms":60000,"settled":25"#), "{json}");
    drop(permit);
    let usage = usage_of(&store, "tokens").await;
    assert_eq!((usage.units, usage.held.len()), (25, 0));
    let counts = store
        .counts(&TOKENS, &[StoredKey::whole("ann")])
        .await
        .expect("they are known");
    assert_eq!(counts[0].units, 25);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_reservation_is_spent() {
    let store = listing();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    permit.settle("tokens", 25);
    let usage = usage_of(&store, "tokens").await;
    let id = &usage.held[0].id;
    revoke(&store, "tokens", id).await;
    assert!(permit.is_lost());
    assert_eq!(in_use(&store, "tokens").await, (60, 0));
    permit.settle("tokens", 90);
    drop(permit);
    assert_eq!(in_use(&store, "tokens").await, (60, 0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_a_policy_holds_for_all_its_windows() {
    let store = listing();
    // Without an operator's limit, the claims use up their own limit of 1. So the last grants are under the limit of 5.
    for limit in [None, Some(0), Some(5)] {
        let set = store.set_limit(&"rate".into(), None, limit, "").await;
        set.expect("it is set");
        for window in [MINUTE, 2 * MINUTE] {
            let answer = answer(&store, rate(1, window).with_key("bob"));
            match limit {
                Some(0) => assert!(matches!(answer, Err(AcquireError::KeyClosed { .. }))),
                _ => drop(answer.expect("there is room")),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_a_policy_holds_for_all_its_windows() {
    let store = listing();
    drop(granted(&store, rate(9, MINUTE)));
    let (policy, key) = (Policy::from_static("rate"), "ann".into());
    store
        .pause(&policy, &key, MINUTE, "")
        .await
        .expect("it is paused");
    for window in [MINUTE, 2 * MINUTE] {
        let answer = answer(&store, rate(9, window));
        assert!(
            matches!(answer, Err(AcquireError::Paused { .. })),
            "{answer:?}"
        );
    }
    assert!(store.resume(&policy, &key).await.expect("it is answered"));
    for window in [MINUTE, 2 * MINUTE] {
        drop(granted(&store, rate(9, window)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_pauses_its_budget_and_the_waiter_goes_on_after_it() {
    let store = listing();
    let permit = granted(&store, rate(9, SECOND));
    permit
        .pause("rate", MINUTE, "")
        .await
        .expect("it is paused");
    let start = Instant::now();
    let waiting = store.acquire(rate(9, SECOND).with_wait(2 * MINUTE));
    drop(waiting.await.expect("there is room"));
    assert_eq!(start.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_higher_limit_lets_a_waiter_in() {
    let store = listing();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let waiting = store.acquire(tokens(60, MINUTE, 30).with_wait(MINUTE));
    let waiting = tokio::spawn(waiting);
    advance(SECOND).await;
    store
        .set_limit(&TOKENS, None, Some(90), "")
        .await
        .expect("it is set");
    let start = Instant::now();
    drop(waiting.await.expect("no panic").expect("there is room"));
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_revoked_is_refused() {
    let store = listing();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let waiting = tokio::spawn(store.acquire(tokens(60, MINUTE, 30).with_wait(MINUTE)));
    advance(SECOND).await;
    let usage = usage_of(&store, "tokens").await;
    let id = &usage.waiting[0].id;
    revoke(&store, "tokens", id).await;
    let answer = waiting.await.expect("no panic");
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
    drop(held);
}
