//! Unit tests, for cases that tests from outside do not show.

use super::cell::Cell;
use crate::semaphore::Policy;
use futures_util::FutureExt;
use proto::core::{Event, Time};
use std::{iter, pin::pin, time::Duration};

#[test]
fn a_task_that_waits_for_a_loss_is_woken_even_if_the_permit_is_held_again_by_then() {
    let cell = Cell::new(iter::empty());
    let mut waiting = pin!(cell.loss().wait());
    assert!(waiting.as_mut().now_or_never().is_none());
    cell.apply(Event::Lost);
    // Another thread's step ends the loss before the first thread wakes the task.
    cell.apply(Event::Regained(Vec::new()));
    cell.wake(false);
    assert!(waiting.as_mut().now_or_never().is_none());
    cell.wake(true);
    assert!(waiting.now_or_never().is_some());
}

#[test]
fn after_a_panic_of_the_core_a_granted_permit_is_lost_and_a_claim_is_not() {
    let (before, after) = (Time::from_secs(1), Time::from_secs(2));
    let one_level = || iter::once((Policy::DEFAULT, "a".into(), 0));
    let (granted, claim) = (Cell::new(one_level()), Cell::new(one_level()));
    granted.apply(Event::Held(before + Duration::from_millis(1)));
    let (token, held, limit) = (7, 1, 1);
    granted.apply(Event::Granted(vec![(token, held, limit)]));
    let lost = [&granted, &claim].map(|cell| [before, after].map(|now| cell.close(now).1.len()));
    assert_eq!(lost, [[0, 1], [0, 0]]);
}
