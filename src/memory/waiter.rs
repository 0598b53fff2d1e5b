//! A claim in the queue of its key.

use super::{
    grant::permit,
    holders::Details,
    queue::{Acquired, Position},
    shard::Entry,
};
use crate::{
    observe::{LostBy, Meter, Outcome, Store, Waiting},
    semaphore::{AcquireError, Claim, Permit, Policy, Units, timer::timeout},
    sync::AtomicUsize,
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// Counts the waiting claims of a store against their maximum.
pub(super) struct WaiterSlots {
    max: usize,
    used: AtomicUsize,
    /// Slots of claims on trial. They have the same maximum, counted separately.
    used_on_trial: AtomicUsize,
}

impl WaiterSlots {
    pub(super) fn new(max: u32) -> Self {
        Self {
            max: max as usize,
            used: AtomicUsize::new(0),
            used_on_trial: AtomicUsize::new(0),
        }
    }

    /// A slot, if one is free.
    pub(super) fn take(slots: &Arc<Self>, is_trial: bool) -> Option<WaiterSlot> {
        let before = slots.used(is_trial).fetch_add(1, Relaxed);
        // Made even if no slot is free: its drop reverts the increment.
        let slot = WaiterSlot {
            slots: Arc::clone(slots),
            is_trial,
        };
        (before < slots.max).then_some(slot)
    }

    fn used(&self, is_trial: bool) -> &AtomicUsize {
        match is_trial {
            true => &self.used_on_trial,
            false => &self.used,
        }
    }
}

/// The slot of one waiter, free again when dropped.
pub(super) struct WaiterSlot {
    slots: Arc<WaiterSlots>,
    is_trial: bool,
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.slots.used(self.is_trial).fetch_sub(1, Relaxed);
    }
}

/// A claim in a queue. A dropped waiter leaves the queue, or releases its units if it was granted
/// since.
pub(super) struct Waiter {
    entry: Arc<Entry>,
    units: Units,
    position: Position,
    is_done: bool,
    waiting: Waiting,
    _slot: WaiterSlot,
}

impl Waiter {
    pub(super) fn new(
        entry: Arc<Entry>,
        units: Units,
        position: Position,
        slot: WaiterSlot,
        claim: &Claim,
    ) -> Self {
        let mut waiter = Self {
            entry,
            units,
            position,
            is_done: false,
            waiting: Waiting::default(),
            _slot: slot,
        };
        let key = || claim.key().as_bytes().escape_ascii().to_string();
        let meter = Meter::of(Store::Memory, claim.policy().as_str());
        // A recorder that panics drops the waiter, which leaves the queue.
        waiter.waiting.join(&meter, key);
        waiter
    }

    pub(super) async fn wait(
        mut self,
        time: Duration,
        policy: Policy,
    ) -> Result<Permit, AcquireError> {
        match timeout(time, &mut self.position.granted).await {
            Err(_) => {
                self.waiting.leave(Outcome::TimedOut);
                Err(AcquireError::TimedOut)
            }
            // Only an operator drops a sender that has sent nothing.
            Ok(Err(_)) => self.revoked(),
            Ok(Ok(acquired)) if self.position.details.is_listed() => self.listed(&acquired, policy),
            Ok(Ok(acquired)) => Ok(self.permit(&acquired, policy, None)),
        }
    }

    fn permit(
        &mut self,
        acquired: &Acquired,
        policy: Policy,
        details: Option<Arc<Details>>,
    ) -> Permit {
        self.waiting.leave(Outcome::Admitted);
        self.is_done = true;
        let entry = Arc::clone(&self.entry);
        permit(entry, self.units, acquired, policy, details)
    }

    /// The permit of a claim that operators can see. Since its grant they have seen it without a
    /// permit.
    fn listed(&mut self, acquired: &Acquired, policy: Policy) -> Result<Permit, AcquireError> {
        if !self.entry.begin_permit(&self.position) {
            return self.revoked();
        }
        let details = Some(Arc::clone(&self.position.details));
        let permit = self.permit(acquired, policy, details);
        if self.entry.end_permit(&self.position) {
            permit.end(LostBy::Revoked);
        }
        Ok(permit)
    }

    fn revoked<T>(&mut self) -> Result<T, AcquireError> {
        self.waiting.leave(Outcome::Revoked);
        Err(AcquireError::Revoked)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.is_done {
            self.entry.cancel(&self.position, self.units.weight);
        }
    }
}
