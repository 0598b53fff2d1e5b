//! A claim that waits in this process.

use super::{Shards, line::Place, permit, slot::Slot};
use crate::semaphore::{AcquireError, Permit, Units};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::timeout;

/// One of those who may wait in a store; free again when dropped.
pub(super) struct Seat(Arc<Shards>);

impl Seat {
    pub(super) fn take(shards: &Arc<Shards>) -> Option<Self> {
        let before = shards.waiting.fetch_add(1, Ordering::Relaxed);
        let seat = Self(Arc::clone(shards));
        (before < shards.max_waiting_total.load(Ordering::Relaxed)).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place in a line. Dropped, it leaves the line, or hands on what was granted meanwhile.
pub(super) struct Turn {
    slot: Arc<Slot>,
    units: Units,
    place: Place,
    taken: bool,
    _seat: Seat,
}

impl Turn {
    pub(super) fn new(slot: Arc<Slot>, units: Units, place: Place, seat: Seat) -> Self {
        Self {
            slot,
            units,
            place,
            taken: false,
            _seat: seat,
        }
    }

    pub(super) async fn wait(mut self, time: Duration) -> Result<Permit, AcquireError> {
        let Ok(Ok(taken)) = timeout(time, &mut self.place.told).await else {
            return Err(AcquireError::TimedOut);
        };
        self.taken = true;
        Ok(permit(Arc::clone(&self.slot), self.units, &taken))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.taken {
            self.slot.leave(self.place.number, self.units.weight);
        }
    }
}
