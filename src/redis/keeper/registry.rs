//! The leases and counters that the store's callers and the keeper share.

use crate::redis::lease::Lease;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Shards, each with a lock: enough that the threads of a busy process rarely contend for one.
const SHARDS: usize = 16;

type Leases = HashMap<u64, Arc<Lease>>;

/// Leases that the keeper has not adopted yet: those of claims without an answer, and those granted
/// since the last tick. Most permits of short requests are released before the next tick, so they are
/// inserted and removed here, and the keeper needs no message.
#[derive(Default)]
pub(super) struct Registry([Mutex<Leases>; SHARDS]);

impl Registry {
    pub(super) fn insert(&self, lease: Arc<Lease>) {
        self.shard(lease.serial).insert(lease.serial, lease);
    }

    /// Whether it was here.
    pub(super) fn remove(&self, serial: u64) -> bool {
        self.shard(serial).remove(&serial).is_some()
    }

    /// All leases.
    pub(super) fn all(&self) -> Vec<Arc<Lease>> {
        let shards = self.0.iter().map(Mutex::lock);
        let all = shards.flat_map(|shard| shard.values().cloned().collect::<Vec<_>>());
        all.collect()
    }

    /// Removes and returns the granted leases.
    pub(super) fn adopt(&self) -> Vec<Arc<Lease>> {
        let shards = self.0.iter().map(Mutex::lock);
        let granted = shards.flat_map(|mut shard| {
            let granted = shard.extract_if(|_, lease| lease.is_granted());
            granted.map(|(_, lease)| lease).collect::<Vec<_>>()
        });
        granted.collect()
    }

    /// Removes and returns all leases.
    pub(super) fn drain(&self) -> Vec<Arc<Lease>> {
        let shards = self.0.iter().map(Mutex::lock);
        let all = shards.flat_map(|mut shard| std::mem::take(&mut *shard).into_values());
        all.collect()
    }

    fn shard(&self, serial: u64) -> MutexGuard<'_, Leases> {
        self.0[serial as usize % SHARDS].lock()
    }
}

/// Counts releases that were answered, by a hash of their semaphore: enough counters that two
/// semaphores rarely share one.
pub(super) struct ReleaseCounts {
    hasher: RandomState,
    counts: Box<[AtomicU64]>,
}

const COUNTERS: usize = 1_024;

impl Default for ReleaseCounts {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            counts: (0..COUNTERS).map(|_| AtomicU64::default()).collect(),
        }
    }
}

impl ReleaseCounts {
    pub(super) fn get(&self, name: &str) -> u64 {
        self.of(name).load(Ordering::Acquire)
    }

    pub(super) fn add(&self, name: &str) {
        self.of(name).fetch_add(1, Ordering::AcqRel);
    }

    fn of(&self, name: &str) -> &AtomicU64 {
        let hash = self.hasher.hash_one(name) as usize;
        &self.counts[hash % self.counts.len()]
    }
}
