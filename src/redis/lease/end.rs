//! How a lease ends: it is lost, or its owner releases it.
//!
//! A permit of several leases is lost while one of them is. The first lease counts the lost ones, and
//! reports the loss of all.

use super::{Inner, Lease, state::Event};
use crate::observe::{LostBy, events};
use std::sync::Arc;

impl Lease {
    /// A refresh did not find all units of the lease: reports the permit lost, unless it is kept.
    pub(in crate::redis) fn displaced(&self, kept_until: u64) {
        self.lose(kept_until, |inner| match inner.permit.units() {
            // The server has nothing of it.
            1 => Some(Event::Ended),
            _ => Some(Event::Displaced),
        });
    }

    /// Reports the permit lost if the deadline has passed, unless it is kept.
    pub(in crate::redis) fn expire(&self, now: u64, kept_until: u64) {
        self.lose(kept_until, |inner| {
            (now >= inner.deadline).then_some(Event::Ended)
        });
    }

    /// Reports the permit lost, unless it was lost before, if such an event ends the lease. It is
    /// degraded instead if the deadline is before `kept_until`.
    fn lose(&self, kept_until: u64, event: impl FnOnce(&Inner) -> Option<Event>) {
        let mut inner = self.lock();
        let was_outside = inner.state.is_lost() || inner.state.is_degraded();
        let is_kept = self.is_kept(inner.deadline, kept_until);
        let kept = |event: Event| if is_kept { event.kept() } else { event };
        let ends = event(&inner).is_some_and(|event| inner.step(kept(event)));
        if !ends || was_outside {
            return;
        }
        inner.deadline = 0;
        if is_kept {
            let name = Arc::clone(&inner.name);
            drop(inner);
            return self.tell_degraded("kept", &name);
        }
        // Under the lock, so that a grant that follows clears it.
        let reports = self.first.as_deref().unwrap_or(self);
        if let Some(first) = &self.first {
            first.lock().added_lost += 1;
        }
        let was_lost = reports.loss.is_set();
        reports.loss.mark();
        drop(inner);
        if !was_lost {
            self.meter.lost(LostBy::Lease);
            events::lost(self.meter.of_what(), LostBy::Lease, reports.token());
        }
        // A waker may drop the permit, which locks.
        reports.loss.wake();
    }

    /// The lease is not lost any more: nor is the permit, unless by another lease.
    pub(super) fn found(&self, inner: &Inner) {
        let Some(first) = &self.first else {
            return self.clear_loss(inner);
        };
        let mut inner = first.lock();
        inner.added_lost -= 1;
        first.clear_loss(&inner);
    }

    /// A released permit stays lost if it was.
    fn clear_loss(&self, inner: &Inner) {
        if inner.added_lost == 0 && !inner.state.is_lost() && !inner.state.is_released() {
            self.loss.clear();
        }
    }

    /// The owner releases the lease. Returns whether the server needs a release; `false` if the lease
    /// was released before.
    pub(in crate::redis) fn release(&self) -> bool {
        let mut inner = self.lock();
        let state = inner.state;
        if !inner.step(Event::Released) {
            return false;
        }
        if state.is_lost() {
            self.found(&inner);
        }
        // A refresh without an answer may have run before the end of a lease that is kept.
        let was_kept = state.is_degraded() && inner.token > 0;
        state.is_known_to_the_server() || was_kept || inner.unanswered > 0
    }
}
