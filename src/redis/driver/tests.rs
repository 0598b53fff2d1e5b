//! What no program of its own shows.

use super::cell::Cell;
use futures_util::FutureExt;
use proto::core::Event;
use std::{iter, pin::pin};

#[test]
fn who_waits_for_a_loss_is_told_of_one_that_is_over_before_the_wake() {
    let cell = Cell::new(iter::empty());
    let mut waiting = pin!(cell.loss().wait());
    assert!(waiting.as_mut().now_or_never().is_none());
    cell.take(Event::Lost);
    // The step of another thread.
    cell.take(Event::Regained(Vec::new()));
    cell.wake(false);
    assert!(waiting.as_mut().now_or_never().is_none());
    cell.wake(true);
    assert!(waiting.now_or_never().is_some());
}
