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
    shard: Arc<Shard>,
    name: Name,
    weight: u32,
    token: u64,
    released: AtomicBool,
    loss: Loss,
}

impl MemoryGrant {
    pub(super) fn new(shard: Arc<Shard>, name: Name, weight: u32, token: u64) -> Self {
        Self {
            shard,
            name,
            weight,
            token,
            released: AtomicBool::new(false),
            loss: Loss::default(),
        }
    }

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
