//! Units that are spent, reserved and freed. `in_use` returns the spent and the reserved units. `refused` returns the
//! policy that refuses, its units in use, and the time until it has room.
//!
//! Promises: P26.

use super::*;
use tokio::time::advance;
use tower_semaphore::semaphore::Level;

#[tokio::test(start_paused = true)]
async fn a_rate_is_spent_when_it_is_granted_and_returns_evenly() {
    let store = MemorySemaphore::new();
    for _ in 0..60 {
        drop(granted(&store, rate(60, MINUTE)));
    }
    assert_eq!(
        refused(&store, rate(60, MINUTE)),
        ("rate".into(), 60, Some(SECOND))
    );
    advance(SECOND - Duration::from_millis(1)).await;
    let (_, spent, left) = refused(&store, rate(60, MINUTE));
    assert_eq!((spent, left), (60, Some(Duration::from_millis(1))));
    advance(Duration::from_millis(1)).await;
    drop(granted(&store, rate(60, MINUTE)));
    let two = rate(60, MINUTE).with_weight(2);
    assert_eq!(refused(&store, two).2, Some(2 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn an_idle_budget_saves_nothing_beyond_its_limit() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(3, MINUTE)));
    advance(100 * MINUTE).await;
    for _ in 0..3 {
        drop(granted(&store, rate(3, MINUTE)));
    }
    assert_eq!(refused(&store, rate(3, MINUTE)).2, Some(20 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_does_not_return_with_time() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    advance(100 * MINUTE).await;
    assert_eq!(
        refused(&store, tokens(100, MINUTE, 60)),
        ("tokens".into(), 60, None)
    );
    assert_eq!(in_use(&store, "tokens").await, (0, 60));
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn settled_units_return_and_the_end_of_the_permit_frees_the_rest() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    assert!(permit.settle("tokens", 10));
    assert_eq!(in_use(&store, "tokens").await, (10, 50));
    assert!(permit.settle("tokens", 30));
    assert_eq!(in_use(&store, "tokens").await, (30, 30));
    advance(6 * SECOND).await;
    assert_eq!(in_use(&store, "tokens").await, (20, 30));
    drop(permit);
    assert_eq!(in_use(&store, "tokens").await, (20, 0));
    drop(granted(&store, tokens(100, MINUTE, 80)));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_counts_once_and_never_shrinks() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    for used in [30, 30, 10, 0, 30] {
        assert!(permit.clone().settle("tokens", used));
        assert_eq!(in_use(&store, "tokens").await, (30, 30));
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_not_settled_has_used_its_estimate() {
    let store = MemorySemaphore::new();
    drop(granted(&store, tokens(100, MINUTE, 60)));
    assert_eq!(in_use(&store, "tokens").await, (60, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_settled_with_nothing_has_used_nothing() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    assert!(permit.settle("tokens", 0));
    assert_eq!(in_use(&store, "tokens").await, (0, 60));
    assert!(permit.release().await);
    assert_eq!(in_use(&store, "tokens").await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn use_beyond_an_estimate_is_spent_and_delays_later_claims() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, tokens(100, MINUTE, 10));
    permit.settle("tokens", 250);
    assert_eq!(in_use(&store, "tokens").await, (250, 0));
    drop(permit);
    // 160 of the 250 units must return, 100 in a minute.
    let (_, used, left) = refused(&store, tokens(100, MINUTE, 10));
    assert_eq!((used, left), (250, Some(96 * SECOND)));
    advance(96 * SECOND).await;
    drop(granted(&store, tokens(100, MINUTE, 10)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_settled_after_the_end_of_a_permit() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    permit.settle("tokens", 5);
    assert!(permit.release().await);
    permit.settle("tokens", 50);
    assert_eq!(in_use(&store, "tokens").await, (5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_for_all_keys_of_the_policy() {
    let store = MemorySemaphore::new();
    let both = [
        tokens(100, MINUTE, 60),
        tokens(100, MINUTE, 60).with_key("all"),
    ];
    let permit = granted(&store, both);
    assert!(permit.settle("tokens", 5));
    drop(permit);
    assert_eq!(in_use(&store, "tokens").await, (5, 0));
    drop(granted(&store, tokens(100, MINUTE, 95).with_key("all")));
}

#[tokio::test(start_paused = true)]
async fn only_an_estimate_is_settled() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, [flight(5), rate(10, MINUTE)]);
    assert!(!permit.settle("concurrency", 3));
    assert!(!permit.settle("rate", 3));
    assert!(!permit.settle("unknown", 3));
    assert_eq!(in_use(&store, "rate").await, (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_takes_nothing_of_any_level() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(100, MINUTE, 60));
    let all = [flight(1), rate(10, MINUTE), tokens(100, MINUTE, 60)];
    assert_eq!(refused(&store, all.clone()).0, "tokens");
    assert_eq!(in_use(&store, "rate").await, (0, 0));
    drop(granted(&store, flight(1)));
    held.settle("tokens", 0);
    drop(held);
    let permit = granted(&store, all.clone());
    assert_eq!(refused(&store, all).0, "concurrency");
    assert_eq!(in_use(&store, "rate").await, (1, 0));
    assert_eq!(in_use(&store, "tokens").await, (0, 60));
    assert_eq!(
        permit.levels().map(Level::window).collect::<Vec<_>>(),
        [None, Some(MINUTE), Some(MINUTE)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_permit_reports_what_remains_of_a_budget() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, tokens(100, MINUTE, 60));
    assert_eq!(
        (permit.limit(), permit.weight(), permit.remaining()),
        (100, 60, 40)
    );
    let other = granted(&store, tokens(100, MINUTE, 30));
    assert_eq!(other.remaining(), 10);
}

#[tokio::test(start_paused = true)]
async fn each_window_is_a_separate_budget() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(1, MINUTE)));
    drop(granted(&store, rate(1, 2 * MINUTE)));
    refused(&store, rate(1, MINUTE));
    let plain = Claim::new("ann").with_policy("rate").with_limit(1);
    let permit = granted(&store, plain.clone());
    assert_eq!(refused(&store, plain).2, None);
    assert_eq!(usage_of(&store, "rate").await.budgets.len(), 2);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_refuses_until_the_use_is_below_it() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(40)));
    // The 40 units return at the rate of their claim's limit, one per second. 31 of them must return.
    assert_eq!(refused(&store, rate(10, MINUTE)).2, Some(31 * SECOND));
    advance(31 * SECOND).await;
    drop(granted(&store, rate(10, MINUTE)));
    assert_eq!(refused(&store, rate(10, MINUTE)).2, Some(6 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn resize_leaves_budgets_as_they_are() {
    let store = MemorySemaphore::new();
    let permit = granted(&store, [flight(9), tokens(100, MINUTE, 60)]);
    permit.resize(4).await.expect("there is room");
    assert_eq!(
        permit.levels().map(Level::weight).collect::<Vec<_>>(),
        [4, 60]
    );
    assert_eq!(in_use(&store, "tokens").await, (0, 60));
    let error = permit.resize_at(&"tokens".into(), 5).await;
    assert!(
        matches!(error, Err(AcquireError::Invalid { .. })),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn spent_units_stay_spent_although_many_other_keys_come() {
    let store = MemorySemaphore::new();
    for key in 0..2_000_u64 {
        drop(granted(&store, rate(1, MINUTE).with_key(key)));
    }
    // Far more idle keys than the store keeps.
    for key in 0..100_000_u64 {
        drop(granted(&store, Claim::new(key).with_limit(1)));
    }
    for key in 0..2_000_u64 {
        assert_eq!(refused(&store, rate(1, MINUTE).with_key(key)).1, 1);
    }
    let held = granted(&store, tokens(10, MINUTE, 5));
    held.settle("tokens", 5);
    advance(2 * MINUTE).await;
    for key in 0..100_000_u64 {
        drop(granted(&store, Claim::new(key).with_limit(1)));
    }
    // Of the nine, five have come back, and four are new.
    held.settle("tokens", 9);
    assert_eq!(
        in_use(&store, "tokens").await,
        (4, 0),
        "its entry outlives the units"
    );
}
