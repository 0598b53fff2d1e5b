//! The semaphore of one key, locked so that several can be decided together.

use super::{
    holders::Details,
    key_semaphore::KeySemaphore,
    queue::{Acquired, Queue},
};
use crate::{semaphore::Units, sync::MutexGuard};
use std::sync::Arc;

/// A semaphore from which only the owner of this value can acquire.
pub(super) struct Locked<'a> {
    semaphore: &'a KeySemaphore,
    queue: MutexGuard<'a, Queue>,
}

impl Locked<'_> {
    /// The grant of `units`, if they fit and the queue is empty; if not, how many units are held.
    pub(super) fn admits(&self, units: Units) -> Result<Acquired, u32> {
        let held = self.semaphore.held();
        let grant = self.semaphore.grant(held, units);
        grant.filter(|_| self.queue.is_empty()).ok_or(held as u32)
    }

    /// The units held. They cannot increase while this value exists.
    pub(super) fn held(&self) -> u32 {
        self.semaphore.held() as u32
    }

    /// The granted claims without a permit, and the waiters in their order.
    pub(super) fn details(&self) -> (Vec<Arc<Details>>, Vec<Arc<Details>>) {
        self.queue.details()
    }

    /// Acquires `units`, which fit.
    pub(super) fn acquire(&self, units: Units) {
        self.semaphore.add(units);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.semaphore.admit_others(&self.queue);
    }
}

impl KeySemaphore {
    /// Locks the semaphore, so that it can be decided together with others. `None`: the entry is
    /// retired.
    pub(super) fn lock(&self) -> Option<Locked<'_>> {
        let queue = self.queue.lock();
        self.exclude_others().then_some(Locked {
            semaphore: self,
            queue,
        })
    }
}
