//! What is known of a lease.

use super::{Lease, state::State};
use crate::observe::Waiting;
use std::sync::Arc;

impl Lease {
    /// The claim for the lease is in the queue.
    pub(in crate::redis) fn waits(&self, waiting: &mut Waiting) {
        waiting.join(&self.meter, || self.name().to_string());
    }

    /// The lease that reports the loss of the permit.
    pub(in crate::redis) fn of_permit(self: &Arc<Self>) -> Arc<Self> {
        Arc::clone(self.first.as_ref().unwrap_or(self))
    }

    /// Whether a release without an answer freed the lease, given that one sent at `sent` found none.
    pub(in crate::redis) fn is_freed(&self, sent: u64) -> bool {
        let inner = self.lock();
        inner.state == State::Freed && sent < inner.deadline
    }

    /// Whether the lease was granted and is not released, lost or not.
    pub(in crate::redis) fn is_granted(&self) -> bool {
        self.lock().state.is_granted()
    }

    /// Whether the server has answered an acquire, with a refusal or a position in the queue.
    pub(in crate::redis) fn was_answered(&self) -> bool {
        matches!(self.lock().state, State::Queued | State::Refused)
    }

    pub(in crate::redis) fn is_provisional(&self) -> bool {
        self.lock().state == State::Provisional
    }

    pub(in crate::redis) fn is_lost(&self) -> bool {
        self.lock().state.is_lost()
    }

    /// Whether the deadline has passed and the lease is not kept. The keeper may not have reported
    /// the loss yet.
    pub(in crate::redis) fn is_past(&self, now: u64, kept_until: u64) -> bool {
        let inner = self.lock();
        let is_kept = inner.state.is_degraded() || self.is_kept(inner.deadline, kept_until);
        !inner.state.is_released() && !is_kept && now >= inner.deadline
    }

    pub(in crate::redis) fn is_released(&self) -> bool {
        self.lock().state.is_released()
    }
}
