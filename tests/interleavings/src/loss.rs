//! The signal that a permit is lost. Loom fails a scenario with a lost wake-up, because one of its threads never ends.
//!
//! Promises: P4.

use crate::{
    explore::{block_on, explore, join, poll},
    semaphore::Loss,
};
use loom::thread::{self, JoinHandle};
use std::{pin::pin, sync::Arc};

fn spawn(loss: &Arc<Loss>, run: impl FnOnce(&Loss) + 'static) -> JoinHandle<()> {
    let loss = Arc::clone(loss);
    thread::spawn(move || run(&loss))
}

#[test]
fn a_loss_wakes_two_that_begin_to_wait() {
    explore(|| {
        let loss = Arc::new(Loss::default());
        let others = [0, 1].map(|_| spawn(&loss, |loss| block_on(loss.wait())));
        loss.set();
        join(others);
        assert!(loss.is_set());
    });
}

/// A thread that waits before the loss is set is notified, even if the loss is cleared at once.
#[test]
fn a_loss_that_is_cleared_at_once_wakes_earlier_waiters() {
    explore(|| {
        let loss = Arc::new(Loss::default());
        let [sets, clears] = [Loss::set, Loss::clear].map(|change| {
            let loss = Arc::clone(&loss);
            move || change(&loss)
        });
        let mut waiting = Box::pin({
            let loss = Arc::clone(&loss);
            async move { loss.wait().await }
        });
        assert!(poll(&mut waiting).is_pending());
        let other = thread::spawn(move || {
            sets();
            clears();
        });
        // Polls once, at any time, and gives up. It must not take the wake-up of `waiting`.
        let late = spawn(&loss, |loss| {
            let mut wait = pin!(loss.wait());
            let _ = poll(&mut wait);
        });
        block_on(waiting);
        join([other, late]);
        assert!(!loss.is_set());
    });
}

/// Like the keeper, each thread sets the loss under a lock and wakes waiters without the lock.
#[test]
fn two_that_report_a_loss_wake_one_that_waits() {
    explore(|| {
        let loss = Arc::new(Loss::default());
        let reports = [0, 1].map(|_| {
            spawn(&loss, |loss| {
                loss.mark();
                loss.wake();
            })
        });
        block_on(loss.wait());
        join(reports);
    });
}
