//! What is known of a lease.

use super::{Lease, state::State};

impl Lease {
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

    /// Whether the deadline has passed. The keeper may not have reported the loss yet.
    pub(in crate::redis) fn is_past(&self, now: u64) -> bool {
        let inner = self.lock();
        !inner.state.is_released() && now >= inner.deadline
    }

    pub(in crate::redis) fn is_released(&self) -> bool {
        self.lock().state.is_released()
    }
}
