//! A claim in the queue of its key.

use super::{grant::permit, queue::Position, shard::Entry};
use crate::{
    semaphore::{AcquireError, Permit, Policy, Units},
    sync::AtomicUsize,
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::timeout;

/// How many claims wait in a store, and how many may.
pub(super) struct WaiterSlots {
    max: AtomicUsize,
    used: AtomicUsize,
}

impl WaiterSlots {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: AtomicUsize::new(max),
            used: AtomicUsize::new(0),
        }
    }

    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// A slot, if one is free.
    pub(super) fn take(slots: &Arc<Self>) -> Option<WaiterSlot> {
        let before = slots.used.fetch_add(1, Relaxed);
        // Made even if no slot is free: dropping it takes the increment back.
        let slot = WaiterSlot(Arc::clone(slots));
        (before < slots.max.load(Relaxed)).then_some(slot)
    }
}

/// The slot of one waiter, free again when dropped.
pub(super) struct WaiterSlot(Arc<WaiterSlots>);

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}

/// A claim in a queue. A waiter that is dropped leaves the queue, or releases units that were
/// granted meanwhile.
pub(super) struct Waiter {
    entry: Arc<Entry>,
    units: Units,
    position: Position,
    acquired: bool,
    _slot: WaiterSlot,
}

impl Waiter {
    pub(super) fn new(
        entry: Arc<Entry>,
        units: Units,
        position: Position,
        slot: WaiterSlot,
    ) -> Self {
        Self {
            entry,
            units,
            position,
            acquired: false,
            _slot: slot,
        }
    }

    pub(super) async fn wait(
        mut self,
        time: Duration,
        policy: Policy,
    ) -> Result<Permit, AcquireError> {
        let Ok(Ok(acquired)) = timeout(time, &mut self.position.granted).await else {
            return Err(AcquireError::TimedOut);
        };
        self.acquired = true;
        Ok(permit(
            Arc::clone(&self.entry),
            self.units,
            &acquired,
            policy,
        ))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.acquired {
            self.entry.cancel(self.position.number, self.units.weight);
        }
    }
}
