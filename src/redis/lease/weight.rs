//! Leases of a permit that changes its weight.
//!
//! A permit that becomes heavier gets one more lease, which is acquired as that of any claim. A permit
//! that becomes lighter splits a lease, and releases one of the two parts. So what may go wrong on
//! the way to the server is what may go wrong with any acquire and any release.

use super::Lease;
use std::sync::Arc;

impl Lease {
    /// This lease, as one that adds units to the permit of another one.
    pub(in crate::redis) fn adding_to(self, lease: &Arc<Self>) -> Self {
        Self {
            heavier: Some(Arc::clone(lease)),
            ..self
        }
    }

    /// Keeps so many units, and returns a lease of the others, to be released. `None` if this lease
    /// is not held.
    pub(in crate::redis) fn split(&self, keep: u32) -> Option<Self> {
        let mut inner = self.lock();
        if !inner.state.is_held() {
            return None;
        }
        let others;
        (inner.permit, others) = inner.permit.split(keep);
        let part = Self::with(Arc::clone(&inner.name), others, inner.state);
        // The keeper knows this lease by its serial, and need not know the part.
        Some(Self { serial: 0, ..part })
    }

    /// The permit that it has made heavier is not lost any more, unless by another lease.
    pub(super) fn clear_heavier(&self) {
        if let Some(lease) = self.heavier.as_ref().filter(|lease| !lease.is_lost()) {
            lease.loss.clear();
        }
    }
}
