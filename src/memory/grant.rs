//! What a permit of this process holds.

use super::slot::Slot;
use crate::semaphore::{BoxFuture, Grant, Loss};
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Units of a key, given back once.
pub(super) struct MemoryGrant {
    slot: Arc<Slot>,
    weight: u32,
    token: u64,
    released: AtomicBool,
    loss: Loss,
}

impl MemoryGrant {
    pub(super) fn new(slot: Arc<Slot>, weight: u32, token: u64) -> Self {
        Self {
            slot,
            weight,
            token,
            released: AtomicBool::new(false),
            loss: Loss::default(),
        }
    }
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
            self.slot.give_back(self.weight);
        }
        Box::pin(ready(first))
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        if !*self.released.get_mut() {
            self.slot.give_back(self.weight);
        }
    }
}
