//! The keys of a store: where each is found, and what all of them share.

use super::{
    entry::{Counts, Entry},
    holders::{Clock, Details, first_serial},
    limits::Limits,
    shard::{KeyPlace, SHARDS, Shard, shard_number},
};
use crate::{
    semaphore::{AcquireError, Claim, CompactKey, Key, Loss, Pause, Policy},
    sync::{AtomicU64, RandomState},
};
use foldhash::{SharedSeed, fast::SeedableRandomState};
use std::{
    array,
    hash::{BuildHasher, Hasher},
    slice,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Keys {
    /// Hashes keys fast, with a random seed. A client that found out the seed could send keys that collide. Such keys
    /// would slow each other down only while their permits are held at the same time.
    hasher: SeedableRandomState,
    /// The free places for waiting claims. Claims of limits in shadow use the second semaphore, which has the same
    /// number of places.
    slots: [Arc<Semaphore>; 2],
    /// True if operators can list the holders of permits.
    pub(super) lists_holders: bool,
    serial: AtomicU64,
    pub(super) limits: Arc<Limits>,
    pub(super) clock: Clock,
    pub(super) shards: [Arc<Shard>; SHARDS],
}

impl Keys {
    pub(super) fn new(lists_holders: bool, max_waiting: u32) -> Self {
        let (seed, limits) = (RandomState::new().hash_one(0), Arc::default());
        Self {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
            slots: [(); 2].map(|()| Arc::new(Semaphore::new(max_waiting as usize))),
            lists_holders,
            serial: AtomicU64::new(first_serial()),
            shards: array::from_fn(|_| Arc::new(Shard::new(&limits))),
            limits,
            clock: Clock::new(),
        }
    }

    #[inline]
    pub(super) fn place(&self, key: &Key) -> KeyPlace<'_> {
        self.place_of(key.compact_bytes())
    }

    #[inline]
    fn place_of(&self, key: &[u8]) -> KeyPlace<'_> {
        // Only the key is hashed. A store has few policies, so hashing the policy would hardly spread the entries more.
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        let hash = hasher.finish();
        (hash, &self.shards[shard_number(hash)])
    }

    /// Like [`change_each`](Self::change_each), for a compact key.
    pub(super) fn change_each_compact<R>(
        &self,
        policy: &Policy,
        key: &CompactKey,
        change: impl FnMut(&mut Entry, &mut Counts) -> R,
    ) -> Vec<R> {
        let (hash, shard) = self.place_of(key.as_bytes());
        let is_it = |entry: &Entry| entry.key == *key && entry.policy == *policy;
        shard.change_each(hash, is_it, change)
    }

    /// Changes all entries of a key. It has one for each window.
    pub(super) fn change_each<R>(
        &self,
        policy: &Policy,
        key: &Key,
        change: impl FnMut(&mut Entry, &mut Counts) -> R,
    ) -> Vec<R> {
        let (hash, shard) = self.place(key);
        shard.change_each(hash, |entry| entry.is_of(policy, Some(key)), change)
    }

    /// Changes the entry of a claim, if the store has it.
    pub(super) fn change<R>(
        &self,
        claim: &Claim,
        change: impl FnOnce(&mut Entry, &mut Counts) -> R,
    ) -> Option<R> {
        let (hash, shard) = self.place(claim.key());
        shard.change(hash, |entry| entry.is_for(claim), change)
    }

    /// Pauses the key of a claim.
    pub(super) fn pause(&self, claim: &Claim, pause: &Pause) {
        let (hash, shard) = self.place(claim.key());
        shard.pause(hash, claim, pause);
    }

    /// The refusal of a claim that would wait for its own request, which holds a permit of the semaphore through an
    /// outer layer.
    pub(super) fn refusal_by_outer_permit(&self, claim: &Claim) -> Option<AcquireError> {
        if claim.outer().is_empty() {
            return None;
        }
        let refuse = |entry: &mut Entry, _: &mut Counts| entry.refusal(claim.checked_units());
        let refusal = self.change(claim, refuse)?.error(claim.policy());
        refusal
            .semaphore()
            .is_some_and(|id| claim.is_within(id))
            .then_some(refusal)
    }

    /// Applies the limit that an operator has set or removed, for a key or for a whole policy.
    pub(super) fn update_limits(&self, policy: &Policy, key: Option<&Key>) {
        let one = key.map(|key| slice::from_ref(self.place(key).1));
        for shard in one.unwrap_or(&self.shards) {
            shard.update_limits(policy, key);
        }
    }

    /// Makes the details of a claim for operators. `loss` notifies the holder if the permit is revoked.
    #[cold]
    pub(super) fn details(&self, claim: &Claim, loss: &Arc<Loss>) -> Arc<Details> {
        let serial = self.serial.fetch_add(1, Relaxed);
        Details::new(claim, serial, self.lists_holders, loss)
    }

    /// Takes a place among the waiters of the store. Returns `None` if none is free.
    pub(super) fn slot(&self, is_trial: bool) -> Option<OwnedSemaphorePermit> {
        let slots = Arc::clone(&self.slots[usize::from(is_trial)]);
        slots.try_acquire_owned().ok()
    }
}
