//! Which leases are kept though they have ended.

use super::Breaker;
use std::{sync::atomic::Ordering, time::Duration};

impl Breaker {
    /// Leases whose deadline is before this are kept though they have ended: they were not refreshed
    /// since the server answered again, or it has not yet.
    pub(in crate::redis::outage) fn kept_until(&self) -> u64 {
        self.kept_until.load(Ordering::Relaxed)
    }

    /// This process's clock stood still, so leases from before end that much sooner by it.
    pub(in crate::redis::outage) fn advance(&self, missed: Duration) {
        let _state = self.state.lock();
        let end = self.kept_until();
        if end != u64::MAX {
            self.keep_until(end.saturating_sub(missed.as_micros() as u64));
        }
    }

    pub(super) fn keep_until(&self, end: u64) {
        if self.policy.admits() {
            self.summary.kept();
            self.kept_until.store(end, Ordering::Relaxed);
        }
    }
}
