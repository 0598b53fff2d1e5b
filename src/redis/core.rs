//! What the store, its permits and the keeper share.

use super::{
    inbox::Traffic,
    lease::{Lease, Times},
    script::Scripts,
};
use std::{
    hash::{BuildHasher, RandomState},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The way to the server, the lengths of time, what has been released and what is on its way.
pub(super) struct Core {
    pub(super) scripts: Scripts,
    pub(super) times: Times,
    pub(super) landings: Landings,
    pub(super) traffic: Traffic,
    pub(super) granted: Granted,
}

/// What was granted since the keeper last looked. It looks at each of its turns and need not be
/// woken: most permits of short requests are over by then.
#[derive(Default)]
pub(super) struct Granted(Mutex<Vec<Arc<Lease>>>);

impl Granted {
    pub(super) fn add(&self, lease: Arc<Lease>) {
        self.lock().push(lease);
    }

    pub(super) fn take(&self) -> Vec<Arc<Lease>> {
        mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Lease>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts releases that have landed, by a hash of their semaphore: as many counters as make it
/// rare that one semaphore is taken for another.
#[derive(Default)]
pub(super) struct Landings {
    hasher: RandomState,
    counts: [AtomicU64; 32],
}

impl Landings {
    pub(super) fn count(&self, name: &str) -> u64 {
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
