//! The semaphore of one key: how many units are held, and what waits. The lock of its shard is held for every access.

use super::{
    holders::Details,
    queue::{Acquired, Decided, Full, Queue, Waiting},
};
use crate::semaphore::{AcquireError, Claim, CompactKey, Key, Policy, SemaphoreId, Units};
use std::sync::Arc;

/// The semaphore of one key under one policy.
///
/// A counter suffices where Redis needs a set: a permit of this process ends only by its release or its drop, and both
/// are counted. Nothing waits while nothing is held, because every claim in the queue fits then.
pub(super) struct Entry {
    /// Unique in the process: after an eviction the next entry of the key has another one.
    pub(super) id: u64,
    pub(super) hash: u64,
    pub(super) held: u32,
    /// The limit that an operator has set. Read at each decision, so that whoever waits waits under it too.
    pub(super) limit: Option<u32>,
    pub(super) queue: Queue,
    pub(super) policy: Policy,
    pub(super) key: CompactKey,
}

/// What the entries of a shard count together.
#[derive(Default)]
pub(super) struct Counts {
    token: u64,
    /// How many entries have nothing held.
    pub(super) idle: usize,
}

/// An entry, and the counts of its shard.
pub(super) type Changing<'a> = (&'a mut Entry, &'a mut Counts);

impl Entry {
    pub(super) fn new(id: u64, hash: u64, claim: &Claim, limit: Option<u32>) -> Self {
        Self {
            id,
            hash,
            held: 0,
            limit,
            queue: Queue::default(),
            policy: claim.policy().clone(),
            key: CompactKey::new(claim.key()),
        }
    }

    /// Whether it is that of a key, or of any.
    #[inline]
    pub(super) fn is_of(&self, policy: &Policy, key: Option<&Key>) -> bool {
        key.is_none_or(|key| self.key.matches(key)) && self.policy == *policy
    }

    #[inline]
    fn in_force(&self, units: Units) -> u32 {
        self.limit.unwrap_or(units.limit)
    }

    #[inline]
    fn fits(&self, units: Units) -> bool {
        u64::from(self.held) + u64::from(units.weight) <= u64::from(self.in_force(units))
    }

    pub(super) fn full(&self, units: Units) -> Full {
        Full {
            id: self.id,
            held: self.held,
            limit: self.in_force(units),
        }
    }

    /// Whether units can be [acquired](Self::acquire): if they fit, and nothing waits.
    #[inline]
    pub(super) fn admits(&self, units: Units) -> Result<(), Full> {
        match self.fits(units) && self.queue.is_empty() {
            true => Ok(()),
            false => Err(self.full(units)),
        }
    }

    /// Acquires units that are admitted, and lists them under these details if there are any.
    #[inline]
    pub(super) fn acquire(
        &mut self,
        units: Units,
        counts: &mut Counts,
        listed: Option<&Arc<Details>>,
    ) -> Acquired {
        counts.idle -= usize::from(self.held == 0);
        counts.token += 1;
        self.held += units.weight;
        let limit = self.in_force(units);
        if let Some(details) = listed {
            self.queue.list(Arc::clone(details), limit);
        }
        Acquired {
            id: self.id,
            token: counts.token,
            held: self.held,
            limit,
        }
    }

    /// Releases units. [`grant`](Self::grant) follows.
    #[inline]
    pub(super) fn free(&mut self, weight: u32, counts: &mut Counts) {
        self.held -= weight;
        counts.idle += usize::from(weight > 0 && self.held == 0);
    }

    /// Joins the queue, unless `max_waiting` claims or more are ahead, or it is too heavy for the limit in force.
    pub(super) fn join(&mut self, waiting: Waiting, max_waiting: u32) -> Result<(), AcquireError> {
        let units = waiting.units();
        if units.weight > self.in_force(units) {
            return Err(self.full(units).error(&self.policy));
        }
        match self.queue.push(waiting, max_waiting) {
            true => Ok(()),
            false => Err(AcquireError::QueueFull {
                policy: self.policy.clone(),
                limit: self.in_force(units),
                semaphore: Some(SemaphoreId::numbered(self.id)),
            }),
        }
    }

    /// Grants to the head of the queue as long as the head fits. Waiters behind a head that does not fit are not
    /// granted, so that light claims do not starve a heavy one.
    #[inline]
    pub(super) fn grant(&mut self, counts: &mut Counts) -> Vec<Decided> {
        match self.queue.is_empty() || self.is_full() {
            true => Vec::new(),
            false => self.grant_waiters(counts),
        }
    }

    /// True if no waiter fits, whichever is first. Saves looking at the queue.
    fn is_full(&self) -> bool {
        self.held >= self.limit.unwrap_or(self.queue.max_limit())
    }

    #[cold]
    fn grant_waiters(&mut self, counts: &mut Counts) -> Vec<Decided> {
        let mut granted = Vec::new();
        while self.queue.head().is_some_and(|units| self.fits(units))
            && let Some((head, deliver)) = self.queue.pop()
        {
            let acquired = self.acquire(head.units, counts, head.listed());
            granted.push(Decided(Ok(acquired), deliver));
        }
        granted
    }

    /// Puts the limit in force that an operator has set. Refuses waiters that it can never serve, and grants those
    /// that fit under it.
    pub(super) fn set_limit(&mut self, limit: Option<u32>, counts: &mut Counts) -> Vec<Decided> {
        self.limit = limit;
        let (id, held) = (self.id, self.held);
        let full = limit.map(|limit| Full { id, held, limit });
        let refused = full.map_or_else(Vec::new, |full| self.queue.refuse_heavy(full));
        refused.into_iter().chain(self.grant(counts)).collect()
    }
}
