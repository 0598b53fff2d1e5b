//! Leases that the policy admits or keeps while the store is unavailable, and whether the process has
//! counted a lease.

use super::{Inner, Lease, state::Event};
use crate::observe::events;
use std::{mem, sync::Arc};

impl Lease {
    /// This lease, as one that is lost when it ends, even while the store is unavailable.
    pub(in crate::redis) fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    pub(in crate::redis) fn is_strict(&self) -> bool {
        self.strict
    }

    /// The policy admits the claim.
    pub(in crate::redis) fn admitted(&self) {
        self.lock().step(Event::Admitted);
        self.tell_degraded("admitted", &self.name());
    }

    /// Once of a permit, however many leases it has.
    pub(super) fn tell_degraded(&self, how: &'static str, name: &str) {
        let permit = self.first.as_deref().unwrap_or(self);
        if mem::replace(&mut permit.lock().told_degraded, true) {
            return;
        }
        self.meter.degraded();
        events::degraded(self.meter.of_what(), how, name);
    }

    /// The lease was degraded, and is granted.
    pub(super) fn recovered(&self, inner: &mut Inner) {
        match &self.first {
            Some(first) => first.lock().told_degraded = false,
            None => inner.told_degraded = false,
        }
    }

    pub(in crate::redis) fn is_degraded(&self) -> bool {
        self.lock().state.is_degraded()
    }

    /// Whether the owner goes on without a place in the store: lost or degraded.
    pub(in crate::redis) fn is_outside(&self) -> bool {
        self.is_lost() || self.is_degraded()
    }

    /// Whether a lease that ends at the deadline is degraded then, not lost.
    pub(super) fn is_kept(&self, deadline: u64, kept_until: u64) -> bool {
        !self.strict && deadline < kept_until
    }

    /// Counts the lease if it is granted and not counted yet. Returns what is to be counted.
    pub(in crate::redis) fn count(&self) -> Option<(Arc<str>, u32)> {
        let mut inner = self.lock();
        if inner.counted || !inner.state.is_granted() {
            return None;
        }
        inner.counted = true;
        Some((Arc::clone(&inner.name), inner.permit.units()))
    }

    /// Returns what was counted, once.
    pub(in crate::redis) fn uncount(&self) -> Option<(Arc<str>, u32)> {
        let mut inner = self.lock();
        let units = inner.permit.units();
        mem::take(&mut inner.counted).then(|| (Arc::clone(&inner.name), units))
    }
}
