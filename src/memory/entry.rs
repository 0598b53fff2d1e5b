//! The semaphore of one key: the units that are held, and the claims that wait. The lock of its shard is held for every
//! access.

use super::{
    holders::Details,
    queue::{Decided, KeyGrant, KeyRefusal, Queue, QueuedClaim},
};
use crate::semaphore::{AcquireError, Claim, CompactKey, Key, Pause, Policy, SemaphoreId, Units};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The semaphore of one key under one policy.
///
/// A counter suffices where Redis needs a set: a permit of this process ends only by its release or its drop, and both
/// are counted. The queue is empty while no units are held and the key is not paused, because its head would fit.
pub(super) struct Entry {
    /// Unique in the process: after an eviction the next entry of the key has another id.
    pub(super) id: u64,
    pub(super) hash: u64,
    pub(super) held: u32,
    /// The limit that an operator has set. Read at each decision, so that it also applies to waiters.
    pub(super) limit: Option<u32>,
    /// While this is set nothing is granted, even if the pause is over. The next claim or waiter removes it.
    pause: Option<Box<ActivePause>>,
    pub(super) queue: Queue,
    pub(super) policy: Policy,
    pub(super) key: CompactKey,
}

/// A pause of a key.
pub(super) struct ActivePause {
    pub(super) since: Instant,
    pub(super) until: Instant,
    pub(super) note: Option<String>,
}

/// Counts over all entries of a shard.
#[derive(Default)]
pub(super) struct Counts {
    token: u64,
    /// The number of entries without held units.
    pub(super) idle: usize,
    /// The number of idle entries that the last eviction has kept, because their keys were paused.
    pub(super) kept: usize,
}

/// An entry, and the counts of its shard.
pub(super) type EntryMut<'a> = (&'a mut Entry, &'a mut Counts);

impl ActivePause {
    fn is_over(&self) -> bool {
        self.until <= Instant::now()
    }
}

impl Entry {
    pub(super) fn new(id: u64, hash: u64, claim: &Claim, limit: Option<u32>) -> Self {
        Self {
            id,
            hash,
            held: 0,
            limit,
            pause: None,
            queue: Queue::default(),
            policy: claim.policy().clone(),
            key: CompactKey::new(claim.key()),
        }
    }

    /// True if the entry belongs to this policy and this key. Without a key, true for every key of the policy.
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

    /// The refusal of these units. It omits the pause if they are heavier than the limit in force, because waiting for the
    /// end of the pause would not help.
    pub(super) fn refusal(&self, units: Units) -> KeyRefusal {
        let limit = self.in_force(units);
        let pause = self.pause.as_ref().filter(|_| units.weight <= limit);
        KeyRefusal {
            id: self.id,
            held: self.held,
            limit,
            pause: pause.map(|pause| pause.until.saturating_duration_since(Instant::now())),
        }
    }

    /// Succeeds if units can be [acquired](Self::acquire): they fit, no claim waits, and the key is not paused.
    #[inline]
    pub(super) fn admits(&self, units: Units) -> Result<(), KeyRefusal> {
        match self.fits(units) && self.queue.is_empty() && self.pause.is_none() {
            true => Ok(()),
            false => Err(self.refusal(units)),
        }
    }

    /// Acquires units that were admitted. Lists them under the details, if given.
    #[inline]
    pub(super) fn acquire(
        &mut self,
        units: Units,
        counts: &mut Counts,
        listed: Option<&Arc<Details>>,
    ) -> KeyGrant {
        counts.idle -= usize::from(self.held == 0);
        counts.token += 1;
        self.held += units.weight;
        let limit = self.in_force(units);
        if let Some(details) = listed {
            self.queue.list(Arc::clone(details), limit);
        }
        KeyGrant {
            id: self.id,
            token: counts.token,
            held: self.held,
            limit,
        }
    }

    /// Releases units. The caller must call [`grant`](Self::grant) afterwards.
    #[inline]
    pub(super) fn free(&mut self, weight: u32, counts: &mut Counts) {
        self.held -= weight;
        counts.idle += usize::from(weight > 0 && self.held == 0);
    }

    /// Adds a claim to the queue. Fails if `max_waiting` or more claims are ahead, if the claim is too heavy for the limit in
    /// force, or if the key is paused for longer than the claim waits.
    pub(super) fn join(
        &mut self,
        waiting: QueuedClaim,
        wait: Duration,
        max_waiting: u32,
    ) -> Result<(), AcquireError> {
        let units = waiting.units();
        let refusal = self.refusal(units);
        if units.weight > refusal.limit || refusal.outlasts(wait) {
            return Err(refusal.error(&self.policy));
        }
        match self.queue.push(waiting, max_waiting) {
            true => Ok(()),
            false if refusal.outlasts(Duration::ZERO) => Err(refusal.error(&self.policy)),
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
        match self.queue.is_empty() || self.is_full() || self.pause_in_force().is_some() {
            true => Vec::new(),
            false => self.grant_waiters(counts),
        }
    }

    /// True if no waiter can fit, so that the queue need not be looked at.
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

    /// Removes a pause that is over. The caller must call [`grant`](Self::grant) afterwards.
    #[inline]
    pub(super) fn drop_ended_pause(&mut self) {
        self.pause.take_if(|pause| pause.is_over());
    }

    /// Returns the pause of the key, if it is paused now. Removes a pause that is over. The caller must call
    /// [`grant`](Self::grant) afterwards.
    #[inline]
    pub(super) fn pause_in_force(&mut self) -> Option<&ActivePause> {
        self.drop_ended_pause();
        self.pause.as_deref()
    }

    /// Pauses the key, unless it is paused for as long already. Returns the waiters that do not know yet that it is
    /// paused.
    pub(super) fn set_pause(&mut self, Pause { time, note }: Pause) -> Vec<Arc<Details>> {
        let since = Instant::now();
        let until = since + time;
        if self.pause.as_ref().is_some_and(|old| old.until >= until) {
            return Vec::new();
        }
        let paused = ActivePause { since, until, note };
        match self.pause.replace(Box::new(paused)) {
            // The waiters already wait for the end of the earlier pause, and look up the new one then.
            Some(_) => Vec::new(),
            None => self.queue.waiters(),
        }
    }

    /// Ends the pause of the key. Returns false if it is not paused now. The caller must call [`grant`](Self::grant)
    /// afterwards.
    pub(super) fn end_pause(&mut self) -> bool {
        self.pause.take().is_some_and(|pause| !pause.is_over())
    }

    /// True if the key has permits or waiters, or is paused now.
    pub(super) fn is_in_use(&self) -> bool {
        self.is_busy() || self.pause.as_ref().is_some_and(|pause| !pause.is_over())
    }

    /// True if the key has permits, or claims wait for it.
    pub(super) fn is_busy(&self) -> bool {
        self.held > 0 || !self.queue.is_empty()
    }

    /// Applies a limit that an operator has set, or its removal. Refuses waiters that can never fit under it, and
    /// grants those that fit now.
    pub(super) fn set_limit(&mut self, limit: Option<u32>, counts: &mut Counts) -> Vec<Decided> {
        self.limit = limit;
        let (id, held) = (self.id, self.held);
        let pause = None;
        let refusal = limit.map(|limit| KeyRefusal {
            id,
            held,
            limit,
            pause,
        });
        let refused = refusal.map_or_else(Vec::new, |refusal| self.queue.refuse_heavy(refusal));
        refused.into_iter().chain(self.grant(counts)).collect()
    }
}
