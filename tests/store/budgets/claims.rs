//! Valid and invalid claims of budgets.
//!
//! Promises: P20, P26.

use super::*;
use tower_semaphore::semaphore::{ClaimError, MAX_WINDOW};

/// The mistake in claims.
fn mistake(claims: impl Into<Claims>) -> ClaimError {
    match answer(&MemorySemaphore::new(), claims) {
        Err(AcquireError::Invalid { source, .. }) => source,
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_lasts_from_a_millisecond_to_31_days() {
    let store = MemorySemaphore::new();
    for window in [Duration::from_millis(1), MAX_WINDOW] {
        drop(granted(&store, rate(1, window)));
    }
    let wrong = [
        Duration::ZERO,
        Duration::from_micros(999),
        MAX_WINDOW + Duration::from_nanos(1),
    ];
    for window in wrong {
        let found = mistake(rate(1, window));
        assert!(matches!(found, ClaimError::Window { window: named, .. } if named == window));
        assert!(found.to_string().starts_with("window: "), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_estimate_needs_a_window_and_replaces_the_weight() {
    assert_eq!(
        mistake(flight(5).with_estimate(1)),
        ClaimError::EstimateWithoutWindow
    );
    assert_eq!(mistake(tokens(5, MINUTE, 0)), ClaimError::EmptyEstimate);
    let both = tokens(5, MINUTE, 2).with_weight(2);
    assert_eq!(mistake(both), ClaimError::EstimateWithWeight);
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_any_number_of_units_of_a_budget_up_to_the_limit() {
    let store = MemorySemaphore::new();
    let all = u32::MAX;
    drop(granted(&store, tokens(all, MINUTE, all)));
    drop(granted(&store, rate(all, MINUTE).with_weight(all)));
    let found = mistake(tokens(99, MINUTE, 100));
    assert!(matches!(
        found,
        ClaimError::TooHeavy {
            weight: 100,
            limit: 99,
            ..
        }
    ));
    assert!(matches!(
        mistake(rate(9, MINUTE).with_weight(0)),
        ClaimError::Weight { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn budgets_come_after_permits_and_the_shortest_window_comes_last() {
    let hour = 60 * MINUTE;
    let right = [flight(5), tokens(9, hour, 1), rate(9, MINUTE)];
    drop(granted(&MemorySemaphore::new(), right));
    for wrong in [
        [rate(9, MINUTE), flight(5)],
        [rate(9, MINUTE), tokens(9, hour, 1)],
    ] {
        assert_eq!(mistake(wrong), ClaimError::BudgetOrder);
    }
    let same = [rate(9, MINUTE), tokens(9, MINUTE, 1)];
    drop(granted(&MemorySemaphore::new(), same));
}

#[tokio::test(start_paused = true)]
async fn a_request_has_one_window_for_a_key_and_a_policy() {
    let two = [rate(9, 60 * MINUTE), rate(9, MINUTE)];
    assert_eq!(mistake(two), ClaimError::Duplicate);
    let with_permit = [
        Claim::new("ann").with_policy("rate").with_limit(5),
        rate(9, MINUTE),
    ];
    assert_eq!(mistake(with_permit), ClaimError::Duplicate);
}

/// A store that counts permits would ignore the window, and hold the units until the release.
#[test]
fn a_store_without_budgets_refuses_a_claim_with_a_window() {
    let error = rate(9, MINUTE).units().expect_err("it has a window");
    assert!(matches!(
        error,
        AcquireError::Invalid {
            source: ClaimError::NoBudgets,
            ..
        }
    ));
    let claims = Claims::from([flight(5), rate(9, MINUTE)]);
    let error = claims.check().expect_err("one has a window");
    assert!(matches!(
        error,
        AcquireError::Invalid {
            source: ClaimError::NoBudgets,
            ..
        }
    ));
}
