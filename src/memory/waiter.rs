//! A claim in the queue of its key.

use super::{grant::uncounted, holders::Details, queue::Waiting, shard::Entry};
use crate::{
    observe::{self, Outcome, Store},
    semaphore::{AcquireError, Claim, Permit, Units, Wait, timer::timeout},
    sync::oneshot,
};
use std::{sync::Arc, time::Duration};

/// Counts the waiting claims of a store against their maximum.
pub(super) struct WaiterSlots {
    max: u32,
    /// Each waiter has a clone: of the second one if its claim is on trial. So many of these may wait beside
    /// the others.
    used: [WaiterSlot; 2],
}

/// The slot of one waiter, free again when dropped.
pub(super) type WaiterSlot = Arc<()>;

impl WaiterSlots {
    pub(super) fn new(max: u32) -> Self {
        Self {
            max,
            used: Default::default(),
        }
    }

    /// A slot, if one is free. Of two threads that take the last one at once, neither may get it.
    pub(super) fn take(&self, is_trial: bool) -> Option<WaiterSlot> {
        let slot = Arc::clone(&self.used[usize::from(is_trial)]);
        // Not the store's own one, nor this.
        let others = Arc::strong_count(&slot) - 2;
        (others < self.max as usize).then_some(slot)
    }
}

/// A claim in a queue. A waiter that is dropped leaves the queue; a permit that it was granted is dropped
/// with it.
pub(super) struct Waiter {
    entry: Arc<Entry>,
    serial: u64,
    permit: oneshot::Receiver<Permit>,
    is_granted: bool,
    waiting: observe::Waiting,
    _slot: WaiterSlot,
}

impl Waiter {
    /// Joins the queue of an entry. `None`: the entry is retired.
    pub(super) fn join(
        entry: &Arc<Entry>,
        claim: &Claim,
        (units, wait): (Units, Wait),
        details: Arc<Details>,
        slot: WaiterSlot,
    ) -> Result<Option<Self>, AcquireError> {
        let (serial, is_listed) = (details.serial, details.is_listed);
        let of = Arc::clone(entry);
        let make_permit = move |acquired: &_| uncounted(of, units, acquired, is_listed);
        let (waiting, permit) = Waiting::new(units, wait, details, make_permit);
        if !entry.semaphore.enqueue(waiting, wait.max_waiting)? {
            return Ok(None);
        }
        let mut waiter = Self {
            entry: Arc::clone(entry),
            serial,
            permit,
            is_granted: false,
            waiting: observe::Waiting::default(),
            _slot: slot,
        };
        let key = || claim.key().as_bytes().escape_ascii().to_string();
        let policy = claim.policy().as_str();
        waiter.waiting.join(Store::Memory, policy, key);
        Ok(Some(waiter))
    }

    pub(super) async fn wait(mut self, time: Duration) -> Result<Permit, AcquireError> {
        let error = match timeout(time, &mut self.permit).await {
            Ok(Ok(permit)) if permit.weight() > 0 => {
                self.is_granted = true;
                self.waiting.leave(Outcome::Admitted);
                permit.count();
                return Ok(permit);
            }
            // Only an operator drops a sender that has sent nothing, or ends a permit that nobody has.
            Ok(_) => AcquireError::Revoked,
            Err(_) => AcquireError::TimedOut,
        };
        self.waiting.leave(error.outcome());
        Err(error)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.is_granted {
            self.entry.cancel(self.serial);
        }
    }
}
