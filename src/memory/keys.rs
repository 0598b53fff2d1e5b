//! The keys of a store: where the entry of each is found, and what all of them share.

use super::{
    holders::{Clock, Details, first_serial},
    limits::Limits,
    queue::Acquired,
    shard::{Entry, Shard},
};
use crate::{
    semaphore::{Claim, Key, Loss, Policy},
    sync::{AtomicU64, RandomState},
};
use foldhash::{SharedSeed, fast::SeedableRandomState};
use std::{
    array,
    hash::{BuildHasher, Hasher},
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Shards of a store. Each has a lock of its own, which is held for every lookup of a key. On 2
/// cores 16 shards are as fast, and 256 slow a pair of acquire and release down by a fifth
/// (`benches/memory`); 64 leave room for machines with more cores.
pub(super) const SHARDS: usize = 64;

pub(super) struct Keys {
    /// Hashes keys fast, with a random seed. A client that found out the seed could send keys that collide;
    /// such keys would slow each other down only while their permits are held at the same time.
    hasher: SeedableRandomState,
    pub(super) waiter_slots: WaiterSlots,
    /// Whether permits are listed.
    pub(super) has_holders: bool,
    serial: AtomicU64,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) shards: [Arc<Shard>; SHARDS],
}

impl Keys {
    /// None yet.
    pub(super) fn new(has_holders: bool, max_waiting: u32) -> Self {
        let seed = RandomState::new().hash_one(0);
        Self {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
            waiter_slots: WaiterSlots::new(max_waiting),
            has_holders,
            serial: AtomicU64::new(first_serial()),
            limits: Limits::default(),
            clock: Clock::new(),
            shards: array::from_fn(|_| Arc::default()),
        }
    }

    /// The entry of a claim's key.
    #[inline]
    pub(super) fn entry(&self, claim: &Claim) -> Arc<Entry> {
        let (hash, shard) = self.shard(claim.key());
        shard.entry((hash, claim), &self.limits)
    }

    /// Puts the limit of a key, or of a policy, in force that an operator has set.
    pub(super) fn limit_anew(&self, policy: &Policy, key: Option<&Key>) {
        let entries: Vec<_> = match key {
            Some(key) => self.find(policy, key).into_iter().collect(),
            None => {
                let shards = self.shards.iter();
                shards.flat_map(|shard| shard.entries_of(policy)).collect()
            }
        };
        for entry in entries {
            entry.limit_anew(&self.limits);
        }
    }

    pub(super) fn find(&self, policy: &Policy, key: &Key) -> Option<Arc<Entry>> {
        let (hash, shard) = self.shard(key);
        shard.find(hash, policy, key)
    }

    /// The shard of a key, and the key's hash.
    #[inline]
    fn shard(&self, key: &Key) -> (u64, &Arc<Shard>) {
        // Only the key is hashed: a store has few policies, so hashing them would spread the entries
        // hardly more.
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        let hash = hasher.finish();
        // The hash table inside a shard uses the lowest and the highest bits of the hash.
        (hash, &self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Lists what a claim was granted of an entry, if permits are listed.
    pub(super) fn listed(
        &self,
        claim: &Claim,
        (entry, acquired): (&Entry, Acquired),
        loss: &Arc<Loss>,
    ) -> Option<Arc<Details>> {
        let details = self.has_holders.then(|| self.details(claim, loss))?;
        let mut queue = entry.semaphore.queue.lock();
        queue.list(Arc::clone(&details), acquired.limit);
        drop(queue);
        Some(details)
    }

    /// The details for operators of a claim, which is told of its loss there.
    #[cold]
    pub(super) fn details(&self, claim: &Claim, loss: &Arc<Loss>) -> Arc<Details> {
        let serial = self.serial.fetch_add(1, Relaxed);
        Details::new(claim, serial, self.has_holders, loss)
    }
}

/// Counts the waiting claims of a store against their maximum.
pub(super) struct WaiterSlots {
    max: u32,
    /// Each waiter has a clone: of the second one if its claim is on trial. So many of these may wait beside
    /// the others.
    used: [WaiterSlot; 2],
}

/// The slot of one waiter, free again when dropped.
pub(super) type WaiterSlot = Arc<()>;

impl WaiterSlots {
    fn new(max: u32) -> Self {
        Self {
            max,
            used: Default::default(),
        }
    }

    /// A slot, if one is free. Of two threads that take the last one at once, neither may get it.
    pub(super) fn take(&self, is_trial: bool) -> Option<WaiterSlot> {
        let slot = Arc::clone(&self.used[usize::from(is_trial)]);
        // Not the store's own one, nor this.
        let others = Arc::strong_count(&slot) - 2;
        (others < self.max as usize).then_some(slot)
    }
}
