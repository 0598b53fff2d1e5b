//! The grant behind a permit of this process.

use super::{queue::Acquired, shard::Entry};
use crate::semaphore::{BoxFuture, Grant, Loss, Permit, Units};
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A permit for units that were acquired from an entry.
pub(super) fn permit(entry: Arc<Entry>, units: Units, acquired: &Acquired) -> Permit {
    let grant = MemoryGrant {
        entry,
        weight: units.weight,
        token: acquired.token,
        released: AtomicBool::new(false),
        loss: Loss::default(),
    };
    Permit::new(grant, units, acquired.held)
}

/// Units of a key. They are released once, by `release` or by the drop.
struct MemoryGrant {
    entry: Arc<Entry>,
    weight: u32,
    token: u64,
    released: AtomicBool,
    loss: Loss,
}

impl Grant for MemoryGrant {
    fn token(&self) -> u64 {
        self.token
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn release(&self) -> BoxFuture<bool> {
        let first = !self.released.swap(true, Ordering::AcqRel);
        if first {
            self.entry.release(self.weight);
        }
        Box::pin(ready(first))
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        if !*self.released.get_mut() {
            self.entry.release(self.weight);
        }
    }
}
