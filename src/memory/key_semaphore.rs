//! The semaphore of one key, lock-free while its queue is empty.
//!
//! Two counters only grow: units acquired and units released. Their difference is the number of
//! units held. An acquire loads `acquired`, then `released`, and increases `acquired` by
//! compare-and-swap. Units released after the second load only lower the number held, so the
//! difference that was checked against the limit is never too low. The counter of acquired units is
//! the token as well, because each permit increases it.

use super::{
    holders::Details,
    queue::{Acquired, Granted, Position, Queue, Revoked},
};
use crate::{
    semaphore::{AcquireError, Units, Wait},
    sync::{AtomicU64, Mutex},
};
use std::sync::{
    Arc,
    atomic::Ordering::{AcqRel, Acquire},
};

/// In both counters: the queue may have waiters, so only a thread that has locked the queue may
/// acquire.
const QUEUED: u64 = 1 << 63;
/// In `acquired`: the entry was removed from its shard, and the key may have a new entry.
const RETIRED: u64 = 1 << 62;
const FLAGS: u64 = QUEUED | RETIRED;

/// The counters and the queue of one key.
///
/// Counters suffice where Redis needs a set: a permit of this process ends only by its release or
/// its drop, and both are counted.
#[repr(C)]
pub(super) struct KeySemaphore {
    acquired: AtomicU64,
    released: AtomicU64,
    pub(super) queue: Mutex<Queue>,
}

/// Why a semaphore granted nothing.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// The entry is no longer in its shard: the key has to be looked up again.
    Retired,
    /// The units do not fit, or the queue is not empty. Holds the number of units held.
    Full(u32),
}

impl KeySemaphore {
    /// A semaphore whose tokens are greater than `last_token`.
    pub(super) fn new(last_token: u64) -> Self {
        Self {
            acquired: AtomicU64::new(last_token),
            released: AtomicU64::new(last_token),
            queue: Mutex::default(),
        }
    }

    /// Acquires `units` if they fit and the queue is empty.
    pub(super) fn try_acquire(&self, units: Units) -> Result<Acquired, Refusal> {
        let mut acquired = self.acquired.load(Acquire);
        loop {
            if acquired & FLAGS != 0 {
                acquired = self.recheck()?;
                continue;
            }
            // `None` only if `acquired` is stale: other threads acquired and released meanwhile.
            let Some(held) = acquired.checked_sub(self.released()) else {
                acquired = self.acquired.load(Acquire);
                continue;
            };
            let grant = grant(acquired, held, units).ok_or(Refusal::Full(held as u32))?;
            let swapped =
                self.acquired
                    .compare_exchange_weak(acquired, grant.token, AcqRel, Acquire);
            match swapped {
                Ok(_) => return Ok(grant),
                Err(current) => acquired = current,
            }
        }
    }

    /// The counter of acquired units, once the queue is empty; a refusal while it is not.
    #[cold]
    fn recheck(&self) -> Result<u64, Refusal> {
        let queue = self.queue.lock();
        match self.acquired.load(Acquire) {
            retired if retired & RETIRED != 0 => Err(Refusal::Retired),
            _ if !queue.is_empty() => Err(Refusal::Full(self.held() as u32)),
            acquired => Ok(acquired),
        }
    }

    /// Joins the queue, unless it is as long as `wait` allows. A claim that fits now is granted at
    /// once, through its position. `None`: the entry is retired.
    pub(super) fn enqueue(
        &self,
        units: Units,
        wait: Wait,
        details: Arc<Details>,
    ) -> Result<Option<Position>, AcquireError> {
        let mut queue = self.queue.lock();
        if !self.exclude_others() {
            return Ok(None);
        }
        let position = queue.push(units, wait, details);
        self.admit_others(&queue);
        drop(queue);
        let position = position.ok_or(AcquireError::QueueFull)?;
        self.grant_waiters();
        Ok(Some(position))
    }

    /// Routes all acquires and releases through the queue's lock from now on. `false`: the entry is
    /// retired.
    pub(super) fn exclude_others(&self) -> bool {
        if self.acquired.fetch_or(QUEUED, AcqRel) & RETIRED != 0 {
            return false;
        }
        self.released.fetch_or(QUEUED, AcqRel);
        true
    }

    /// Releases `weight` units, and grants waiters that fit now.
    pub(super) fn release(&self, weight: u32) {
        if self.released.fetch_add(u64::from(weight), AcqRel) & QUEUED != 0 {
            self.grant_waiters();
        }
    }

    /// Removes a waiter from the queue, or releases its units if it was granted since. A revoked
    /// waiter has neither a place nor units.
    pub(super) fn cancel(&self, position: &Position, weight: u32) {
        let is_revoked = || position.details.is_revoked();
        let (removed, is_granted) = self.change_queue(|queue| {
            let removed = queue.remove(position.number);
            let is_granted = removed.is_none() && !is_revoked();
            (removed, is_granted)
        });
        drop(removed);
        if is_granted {
            self.released.fetch_add(u64::from(weight), AcqRel);
        }
        self.grant_waiters();
    }

    /// Revokes a claim without a permit for an operator. `false`: it was revoked before. `None`:
    /// there is no such claim.
    pub(super) fn revoke(&self, serial: u64) -> Option<bool> {
        match self.change_queue(|queue| queue.revoke(serial))? {
            // Wakes its task, without the lock.
            Revoked::Waiting(waiting) => drop(waiting),
            Revoked::Granted(weight) => {
                self.released.fetch_add(u64::from(weight), AcqRel);
            }
            Revoked::Taken => return Some(true),
            Revoked::Again => return Some(false),
        }
        self.grant_waiters();
        Some(true)
    }

    /// Grants to the head of the queue as long as the head fits under its own limit. Waiters behind
    /// a head that does not fit are not granted, so that light claims do not starve a heavy one.
    fn grant_waiters(&self) {
        while let Some(granted) = self.change_queue(|queue| self.grant_head(queue)) {
            granted.notify();
        }
    }

    fn grant_head(&self, queue: &mut Queue) -> Option<Granted> {
        let units = queue.head()?;
        let grant = self.grant(self.held(), units)?;
        self.add(units);
        queue.grant_head(grant)
    }

    /// The grant of `units` while `held` are held. Only for use while no other thread acquires.
    pub(super) fn grant(&self, held: u64, units: Units) -> Option<Acquired> {
        grant(self.acquired.load(Acquire) & !FLAGS, held, units)
    }

    pub(super) fn add(&self, units: Units) {
        self.acquired.fetch_add(u64::from(units.weight), AcqRel);
    }

    /// Changes the queue under its lock. Leaving it empty re-enables the lock-free path.
    fn change_queue<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue.lock();
        let changed = change(&mut queue);
        self.admit_others(&queue);
        changed
    }

    pub(super) fn admit_others(&self, queue: &Queue) {
        if queue.is_empty() {
            self.released.fetch_and(!QUEUED, AcqRel);
            self.acquired.fetch_and(!QUEUED, AcqRel);
        }
    }

    /// Marks the semaphore as retired if it is idle, and returns the last token that it granted.
    pub(super) fn retire(&self) -> Option<u64> {
        let idle = self.released();
        self.acquired
            .compare_exchange(idle, idle | RETIRED, AcqRel, Acquire)
            .ok()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.acquired.load(Acquire) != self.released.load(Acquire)
    }

    /// A lower bound of the units held: acquires after the first load are missed. Exact while the
    /// queue is locked and not empty, because then no other thread acquires.
    pub(super) fn held(&self) -> u64 {
        let acquired = self.acquired.load(Acquire) & !FLAGS;
        acquired.saturating_sub(self.released())
    }

    fn released(&self) -> u64 {
        self.released.load(Acquire) & !QUEUED
    }
}

/// The grant of `units` while `held` are held and `acquired` have been acquired; `None` if they do
/// not fit.
fn grant(acquired: u64, held: u64, units: Units) -> Option<Acquired> {
    let (limit, weight) = (u64::from(units.limit), u64::from(units.weight));
    (held + weight <= limit).then(|| Acquired {
        token: acquired + weight,
        held: (held + weight) as u32,
    })
}
