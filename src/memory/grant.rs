//! What a permit of this process holds.

use super::{Name, shard::Shard};
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
    pub(super) shard: Arc<Shard>,
    pub(super) name: Name,
    pub(super) weight: u32,
    pub(super) token: u64,
    pub(super) released: AtomicBool,
    pub(super) loss: Loss,
}

impl MemoryGrant {
    /// Whether it was this call that gave the units back.
    fn give_back(&self) -> bool {
        let first = !self.released.swap(true, Ordering::AcqRel);
        if first {
            self.shard.give_back(&self.name, self.weight);
        }
        first
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
        Box::pin(ready(self.give_back()))
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        self.give_back();
    }
}
