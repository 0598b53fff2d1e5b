//! Leases of a permit that changes its weight.
//!
//! A permit that becomes heavier gets one more lease, which is acquired as that of any claim. A permit
//! that becomes lighter splits a lease, and releases one of the two parts. So what may go wrong on
//! the way to the server is what may go wrong with any acquire and any release.

use super::{
    Inner, Lease,
    state::{Event, State},
};
use crate::redis::protocol::PermitId;
use std::sync::Arc;

impl Lease {
    /// This lease, as one that adds units to the permit of another one.
    pub(in crate::redis) fn adding_to(self, first: &Arc<Self>) -> Self {
        Self {
            first: Some(Arc::clone(first)),
            strict: first.strict,
            meter: first.meter.clone(),
            ..self
        }
    }

    /// Keeps so many units, and returns a lease of the others, to be released. `None` if this lease
    /// is released. A lost lease keeps as many as may be granted again.
    pub(in crate::redis) fn split(&self, keep: u32) -> Option<Self> {
        let mut inner = self.lock();
        if !inner.state.is_granted() {
            return None;
        }
        let others;
        (inner.permit, others) = inner.permit.split(keep);
        Some(inner.part(others))
    }

    /// Gives a lost or degraded lease a new id, if its own may not be acquired again. Returns a lease of what the
    /// server may have under the old id, to be released. No acquire may be in flight.
    pub(in crate::redis) fn renew(&self) -> Option<Self> {
        let mut inner = self.lock();
        if !inner.needs_new_id() {
            return None;
        }
        let old = inner.part(inner.permit.clone());
        inner.step(Event::Renewed);
        inner.permit = inner.permit.renewed();
        inner.unanswered = 0;
        Some(old)
    }
}

impl Inner {
    /// Under its id a lost or degraded lease would get the units again that were released of it; or none of those
    /// that it has lost, because the server has others of that id, and takes it for held.
    pub(super) fn needs_new_id(&self) -> bool {
        match self.state {
            State::Lost | State::Degraded => self.permit.is_split(),
            state => matches!(state, State::Displaced | State::Partial),
        }
    }

    /// A lease of some of the units. An acquire that may still run may grant these too. The keeper
    /// knows this lease by its serial, and need not know the part.
    fn part(&self, units: PermitId) -> Lease {
        let part = Self {
            name: Arc::clone(&self.name),
            permit: units,
            added_lost: 0,
            ..*self
        };
        Lease {
            serial: 0,
            ..Lease::with(part)
        }
    }
}
