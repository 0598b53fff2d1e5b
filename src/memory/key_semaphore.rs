//! The semaphore of one key, lock-free while its queue is empty.
//!
//! Two counters only grow: units acquired and units released. Their difference is the number of
//! units held. An acquire loads `acquired`, then `released`, and increases `acquired` by
//! compare-and-swap. Units released after the second load only lower the number held, so the
//! difference that was checked against the limit is never too low. The counter of acquired units is
//! the token as well, because each permit increases it.

use super::queue::{Acquired, Decided, Full, Queue, Waiting, waking};
use crate::{
    semaphore::{AcquireError, Policy, Units},
    sync::{AtomicU64, Mutex, MutexGuard},
};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// In `acquired`: only a thread that has locked the queue may acquire. In `released`: a release has to
/// lock the queue too, because it may have waiters.
const QUEUED: u64 = 1 << 63;
/// In `acquired`: the entry was removed from its shard, and the key may have a new entry.
const RETIRED: u64 = 1 << 62;
const FLAGS: u64 = QUEUED | RETIRED;

/// In `limit`: claims say it.
const UNSET: u64 = u64::MAX;

/// The counters and the queue of one key.
///
/// Counters suffice where Redis needs a set: a permit of this process ends only by its release or
/// its drop, and both are counted.
#[repr(C)]
pub(super) struct KeySemaphore {
    acquired: AtomicU64,
    released: AtomicU64,
    /// The limit that an operator has set. Read at each decision, so that whoever waits waits under it too.
    limit: AtomicU64,
    /// Without [`lock`](Self::lock) only the list of permits may be changed.
    pub(super) queue: Mutex<Queue>,
}

/// Why a semaphore granted nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refusal {
    /// The entry is no longer in its shard: the key has to be looked up again.
    Retired,
    /// The units do not fit, or the queue is not empty.
    Full(Full),
    /// Too many claims are ahead.
    QueueFull,
}

impl Refusal {
    /// What a claim under this policy is told. An entry that a permit has is not retired.
    pub(super) fn error(self, policy: &Policy) -> AcquireError {
        match self {
            Self::Full(full) => full.error(policy),
            Self::QueueFull | Self::Retired => AcquireError::QueueFull,
        }
    }
}

impl Full {
    pub(super) fn error(self, policy: &Policy) -> AcquireError {
        AcquireError::under(policy, self.limit, self.held)
    }
}

impl KeySemaphore {
    /// A semaphore whose tokens are greater than `last_token`, with the limit that an operator has set.
    pub(super) fn new(last_token: u64, limit: Option<u32>) -> Self {
        Self {
            acquired: AtomicU64::new(last_token),
            released: AtomicU64::new(last_token),
            limit: AtomicU64::new(stored(limit)),
            queue: Mutex::default(),
        }
    }

    /// Acquires `units` if they fit and the queue is empty.
    #[inline]
    pub(super) fn try_acquire(&self, units: Units) -> Result<Acquired, Refusal> {
        let units = self.in_force(units);
        let mut acquired = self.acquired.load(Acquire);
        while acquired & FLAGS == 0 {
            // `None` only if `acquired` is stale: other threads acquired and released meanwhile.
            let Some(held) = acquired.checked_sub(self.released()) else {
                acquired = self.acquired.load(Acquire);
                continue;
            };
            let grant = grant(acquired, held, units).ok_or_else(|| full(held, units))?;
            let (counter, token) = (&self.acquired, grant.token);
            match counter.compare_exchange_weak(acquired, token, AcqRel, Acquire) {
                Ok(_) => return Ok(grant),
                Err(current) => acquired = current,
            }
        }
        self.lock_and_acquire(units)
    }

    #[cold]
    fn lock_and_acquire(&self, units: Units) -> Result<Acquired, Refusal> {
        let mut locked = self.lock().ok_or(Refusal::Retired)?;
        let grant = locked.admits(units)?;
        Ok(locked.acquire(grant))
    }

    /// Joins the queue, unless `max_waiting` claims or more are ahead, or it is too heavy for the limit in force. A claim
    /// that fits by now is granted at once.
    pub(super) fn enqueue(&self, waiting: Waiting, max_waiting: u32) -> Result<(), Refusal> {
        let mut locked = self.lock().ok_or(Refusal::Retired)?;
        let (units, held) = (self.in_force(waiting.units()), locked.held());
        if units.weight > units.limit {
            return Err(full(held, units));
        }
        let pushed = locked.queue.push(waiting, max_waiting);
        drop(locked);
        pushed.map_err(|_| Refusal::QueueFull)?;
        self.grant_waiters();
        Ok(())
    }

    /// Puts another limit in force. What waits is decided by [`limit_waiters`](Self::limit_waiters).
    pub(super) fn set_limit(&self, limit: Option<u32>) {
        self.limit.store(stored(limit), Relaxed);
    }

    /// The limit that an operator has set.
    pub(super) fn limit(&self) -> Option<u32> {
        // A limit has 32 bits, and what stands for none has more.
        u32::try_from(self.limit.load(Relaxed)).ok()
    }

    /// The units of a claim, with the limit in force.
    #[inline]
    fn in_force(&self, units: Units) -> Units {
        let limit = self.limit().unwrap_or(units.limit);
        Units { limit, ..units }
    }

    /// Refuses waiters that the limit in force can never serve, and grants those that fit under it.
    pub(super) fn limit_waiters(&self) {
        let refused = self.lock().map(|mut locked| locked.refuse_heavy());
        let refused = refused.unwrap_or_default();
        refused.into_iter().for_each(Decided::deliver);
        self.grant_waiters();
    }

    /// Releases `weight` units, and grants waiters that fit now.
    #[inline]
    pub(super) fn release(&self, weight: u32) {
        if self.free(weight) {
            self.grant_waiters();
        }
    }

    /// Releases `weight` units. Returns whether waiters may fit now: a [`release`](Self::release) follows, or `grant_waiters`.
    #[inline]
    pub(super) fn free(&self, weight: u32) -> bool {
        self.released.fetch_add(u64::from(weight), AcqRel) & QUEUED != 0
    }

    /// Removes a waiter, and grants those behind it that fit now. `false`: it is not in the queue.
    pub(super) fn cancel(&self, serial: u64) -> bool {
        let removed = self
            .lock()
            .and_then(|mut locked| locked.queue.remove(serial));
        let was_waiting = removed.is_some();
        // Wakes its task, without the lock.
        waking(|| drop(removed));
        self.grant_waiters();
        was_waiting
    }

    /// Grants to the head of the queue as long as the head fits under the limit in force. Waiters behind
    /// a head that does not fit are not granted, so that light claims do not starve a heavy one.
    fn grant_waiters(&self) {
        let grant_head = || self.lock().and_then(|mut locked| locked.grant_head());
        while let Some(granted) = grant_head() {
            granted.deliver();
        }
    }

    /// Locks the semaphore. `None`: the entry is retired.
    pub(super) fn lock(&self) -> Option<Locked<'_>> {
        let queue = self.queue.lock();
        let before = self.acquired.fetch_or(QUEUED, AcqRel);
        (before & RETIRED == 0).then_some(Locked {
            semaphore: self,
            acquired: before & !QUEUED,
            was_queued: before & QUEUED != 0,
            queue,
        })
    }

    /// Marks the semaphore as retired if it is idle, and returns the last token that it granted.
    pub(super) fn retire(&self) -> Option<u64> {
        let idle = self.released();
        let (counter, retired) = (&self.acquired, idle | RETIRED);
        counter
            .compare_exchange(idle, retired, AcqRel, Acquire)
            .ok()
    }

    /// A lower bound of the units held: it misses what is acquired after the first load.
    #[inline]
    pub(super) fn held(&self) -> u64 {
        let acquired = self.acquired.load(Acquire) & !FLAGS;
        acquired.saturating_sub(self.released())
    }

    #[inline]
    fn released(&self) -> u64 {
        self.released.load(Acquire) & !QUEUED
    }
}

/// A semaphore from which only the holder of this acquires, so that it can be decided together with others.
pub(super) struct Locked<'a> {
    semaphore: &'a KeySemaphore,
    acquired: u64,
    /// Whether the queue had waiters when it was locked.
    was_queued: bool,
    pub(super) queue: MutexGuard<'a, Queue>,
}

impl Locked<'_> {
    /// The grant of `units`, if they fit and the queue is empty.
    pub(super) fn admits(&self, units: Units) -> Result<Acquired, Refusal> {
        let (held, units) = (self.held(), self.semaphore.in_force(units));
        let grant = grant(self.acquired, held, units);
        let grant = grant.filter(|_| self.queue.is_empty());
        grant.ok_or_else(|| full(held, units))
    }

    /// Acquires what is admitted.
    pub(super) fn acquire(&mut self, grant: Acquired) -> Acquired {
        self.acquired = grant.token;
        grant
    }

    /// How many units are held. No more will be while this exists.
    pub(super) fn held(&self) -> u64 {
        self.acquired - self.semaphore.released()
    }

    fn refuse_heavy(&mut self) -> Vec<Decided> {
        let (held, limit) = (self.held() as u32, self.semaphore.limit());
        let full = limit.map(|limit| Full { held, limit });
        full.map_or_else(Vec::new, |full| self.queue.refuse_heavy(full))
    }

    fn grant_head(&mut self) -> Option<Decided> {
        let units = self.semaphore.in_force(self.queue.head()?);
        let grant = grant(self.acquired, self.held(), units)?;
        self.acquired = grant.token;
        self.queue.grant_head(grant)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let (semaphore, is_queued) = (self.semaphore, !self.queue.is_empty());
        if self.was_queued != is_queued {
            semaphore.released.fetch_xor(QUEUED, AcqRel);
        }
        // Nobody else writes it while it has the flag.
        let flag = if is_queued { QUEUED } else { 0 };
        semaphore.acquired.store(self.acquired | flag, Release);
    }
}

/// The grant of `units` while `held` are held and `acquired` have been acquired; `None` if they do
/// not fit.
#[inline]
fn grant(acquired: u64, held: u64, units: Units) -> Option<Acquired> {
    let (limit, weight) = (u64::from(units.limit), u64::from(units.weight));
    (held + weight <= limit).then(|| Acquired {
        token: acquired + weight,
        held: (held + weight) as u32,
        limit: units.limit,
    })
}

fn full(held: u64, units: Units) -> Refusal {
    let (held, limit) = (held as u32, units.limit);
    Refusal::Full(Full { held, limit })
}

fn stored(limit: Option<u32>) -> u64 {
    limit.map_or(UNSET, u64::from)
}
