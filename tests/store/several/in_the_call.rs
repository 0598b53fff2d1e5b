//! The store in memory decides within the call, not when its answer is awaited.
//!
//! Promises: P3.
//!
//! `claims` makes a claim for an account, its route and the fleet, with these limits.

use super::BOUND;
use futures_util::FutureExt;
use testing::levels::claims;
use tower_semaphore::{AcquireError, Claims, MemorySemaphore, Permit, Semaphore};

fn try_all(store: &MemorySemaphore, claims: impl Into<Claims>) -> Result<Permit, AcquireError> {
    let answer = store.acquire_all(claims.into()).now_or_never();
    answer.expect("claims that do not wait are answered at once")
}

#[test]
fn a_refusal_stands_although_a_unit_is_released_before_it_is_read() {
    let store = MemorySemaphore::new();
    let held = try_all(&store, claims("alice", [1, 5, 5])).expect("there is room");
    let refused = store.acquire_all(claims("alice", [1, 5, 5]).into());
    drop(held);
    let answer = refused.now_or_never();
    assert!(matches!(answer, Some(Err(AcquireError::Full { .. }))));
}

#[test]
fn claims_that_may_wait_and_fit_hold_their_units_before_the_answer_is_read() {
    let store = MemorySemaphore::new();
    let patient = claims("alice", [1, 5, 5]).map(|claim| claim.with_wait(BOUND));
    let granted = store.acquire_all(patient.into());
    assert!(try_all(&store, claims("alice", [1, 5, 5])).is_err());
    drop(granted);
    assert!(try_all(&store, claims("alice", [1, 5, 5])).is_ok());
}
