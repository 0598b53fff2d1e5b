//! A shard: some of the store's keys, in a table under one lock.

use super::{
    holders::{Details, Now, infos},
    key_semaphore::KeySemaphore,
    limits::Limits,
};
use crate::{
    semaphore::{Claim, Key, Policy, SemaphoreId, Usage},
    sync::{Mutex, fence},
};
use hashbrown::hash_table::HashTable;
use std::{
    ptr,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// Idle entries that a shard keeps, because the next claim is likely to be for a recent key, and
/// looking an entry up is cheaper than allocating one. With 1,000 keys and 8 threads a pair of
/// acquire and release takes a sixth less time with 64 idle entries than with 16, and 256 save no
/// more; with ten times as many keys as idle entries, 16 are better by a sixth (the pairs of
/// `benches/memory`).
pub(super) const IDLE_CAPACITY: usize = 64;

/// Inserts per entry of the table after which all idle entries are evicted. With 4 or 64 the pairs
/// of `benches/memory` take equally long.
const INSERTS_PER_EVICTION: usize = 16;

/// A table of entries. Aligned so that no two shards share a cache line.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    entries: HashTable<Arc<Entry>>,
    /// Inserts since idle entries were evicted.
    inserted: usize,
    /// The greatest token of the removed entries: a key that returns continues above it.
    last_token: u64,
}

/// The semaphore of one key under one policy.
///
/// The fields that change lie together, next to the counts of the entry's `Arc`, so that acquire
/// and release touch few cache lines.
#[repr(C)]
pub(super) struct Entry {
    /// Set if the shard was over capacity: the shard removes this entry once idle, which also
    /// breaks the reference cycle.
    overflow: Option<Arc<Shard>>,
    pub(super) semaphore: KeySemaphore,
    hash: u64,
    pub(super) policy: Policy,
    key: Key,
}

impl Shard {
    /// The entry of a claim's key, inserted if there is none.
    pub(super) fn entry(
        self: &Arc<Self>,
        (hash, claim): (u64, &Claim),
        limits: &Limits,
    ) -> Arc<Entry> {
        let mut table = self.0.lock();
        match table.find(hash, claim.policy(), claim.key()) {
            Some(entry) => Arc::clone(entry),
            None => self.insert(&mut table, (hash, claim), limits),
        }
    }

    /// The entry of a key, if there is one.
    pub(super) fn find(&self, hash: u64, policy: &Policy, key: &Key) -> Option<Arc<Entry>> {
        let table = self.0.lock();
        // Not `Table::find`: with two callers that would not be inlined where every claim passes.
        let is_it = |entry: &&Arc<Entry>| entry.is_of(hash, policy, key);
        table.entries.iter_hash(hash).find(is_it).cloned()
    }

    /// The limit is looked for under the shard's lock, so that one that is set meanwhile is found here or there.
    fn insert(
        self: &Arc<Self>,
        table: &mut Table,
        (hash, claim): (u64, &Claim),
        limits: &Limits,
    ) -> Arc<Entry> {
        let limit = limits.find(claim.policy(), claim.key());
        table.count_insert();
        let over_capacity = table.entries.len() >= IDLE_CAPACITY;
        let entry = Arc::new(Entry {
            overflow: over_capacity.then(|| Arc::clone(self)),
            semaphore: KeySemaphore::new(table.last_token, limit),
            hash,
            policy: claim.policy().clone(),
            key: claim.key().clone(),
        });
        let (entries, kept) = (&mut table.entries, Arc::clone(&entry));
        entries.insert_unique(hash, kept, |entry| entry.hash);
        entry
    }

    /// Removes the entry if it is still idle.
    #[cold]
    fn evict(&self, entry: &Entry) {
        let table = &mut *self.0.lock();
        let is_it = |other: &Arc<Entry>| ptr::eq(Arc::as_ptr(other), entry);
        if let Ok(found) = table.entries.find_entry(entry.hash, is_it)
            && let Some(token) = entry.semaphore.retire()
        {
            table.last_token = token.max(table.last_token);
            found.remove();
        }
    }

    /// The number of keys with permits or waiters.
    pub(super) fn keys(&self) -> usize {
        let table = self.0.lock();
        let busy = |entry: &&Arc<Entry>| entry.semaphore.held() > 0;
        table.entries.iter().filter(busy).count()
    }

    /// The keys that have permits or waiters under a policy, by their hashes, from this hash on.
    pub(super) fn keys_of(&self, policy: &Policy, from: u64) -> Vec<(u64, Key)> {
        let table = self.0.lock();
        let entries = table.entries.iter().filter(|entry| entry.hash >= from);
        let busy = entries.filter(|entry| entry.policy == *policy && entry.semaphore.held() > 0);
        busy.map(|entry| (entry.hash, entry.key.clone())).collect()
    }

    /// The entries of a policy.
    pub(super) fn entries_of(&self, policy: &Policy) -> Vec<Arc<Entry>> {
        let table = self.0.lock();
        let entries = table.entries.iter().filter(|entry| entry.policy == *policy);
        entries.cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn keys_in_table(&self) -> Vec<Key> {
        let table = self.0.lock();
        let keys = table.entries.iter().map(|entry| entry.key.clone());
        keys.collect()
    }
}

impl Table {
    #[inline]
    fn find(&self, hash: u64, policy: &Policy, key: &Key) -> Option<&Arc<Entry>> {
        let is_it = |entry: &Arc<Entry>| entry.is_of(hash, policy, key);
        self.entries.find(hash, is_it)
    }

    /// Counts an insert. After enough of them, evicts all idle entries to make room for recent
    /// keys, at a small cost per insert.
    fn count_insert(&mut self) {
        self.inserted += 1;
        if self.inserted / INSERTS_PER_EVICTION <= IDLE_CAPACITY.max(self.entries.len()) {
            return;
        }
        self.inserted = 0;
        let last_token = &mut self.last_token;
        self.entries.retain(|entry| {
            let retired = entry.semaphore.retire();
            *last_token = retired.unwrap_or(0).max(*last_token);
            retired.is_none()
        });
        self.entries.shrink_to(IDLE_CAPACITY, |entry| entry.hash);
    }
}

impl Entry {
    fn is_of(&self, hash: u64, policy: &Policy, key: &Key) -> bool {
        self.hash == hash && self.key == *key && self.policy == *policy
    }

    /// Unique while the entry is in use: there is no other entry of its policy and key.
    pub(super) fn semaphore_id(&self) -> SemaphoreId {
        SemaphoreId::new(format!("memory {:p}", ptr::from_ref(self)))
    }

    /// `None`: the entry is retired.
    pub(super) fn usage(&self, now: Now) -> Option<Usage> {
        let locked = self.semaphore.lock()?;
        // Nothing is acquired meanwhile, so no unit is seen at the permit that had it and at its next one.
        let (units, (permits, waiting)) = (locked.held() as u32, locked.queue.details());
        let limit = self.semaphore.limit();
        drop(locked);
        self.evict_if_idle();
        let waiting = waiting.iter().map(|details| details.info(limit, now));
        let usage = Usage::new(now.system, units, infos(permits, now), waiting.collect());
        Some(usage.under(limit))
    }

    /// Puts the limit in force that an operator has set.
    pub(super) fn limit_anew(&self, limits: &Limits) {
        limits.with(&self.policy, &self.key, |limit| {
            self.semaphore.set_limit(limit);
        });
        self.semaphore.limit_waiters();
        self.evict_if_idle();
    }

    /// How many units are held, and how many claims wait. `None`: the entry is retired.
    pub(super) fn counts(&self) -> Option<(u32, u32)> {
        let locked = self.semaphore.lock()?;
        let counts = (locked.held() as u32, locked.queue.len() as u32);
        drop(locked);
        self.evict_if_idle();
        Some(counts)
    }

    /// Ends a permit or a wait of this serial. `false`: there is none.
    pub(super) fn revoke(&self, serial: u64) -> bool {
        // First: a claim goes from the waiters to the holders.
        if self.cancel(serial) {
            return true;
        }
        let found = self.unlist(serial);
        let units = found.map_or(0, |details| details.revoke());
        if units > 0 {
            self.release(units);
        }
        units > 0
    }

    /// Lists a permit no more.
    pub(super) fn unlist(&self, serial: u64) -> Option<Arc<Details>> {
        self.semaphore.queue.lock().unlist(serial)
    }

    /// Releases `weight` units, and grants waiters that fit now: also those that fit because of units that were freed.
    pub(super) fn release(&self, weight: u32) {
        self.semaphore.release(weight);
        self.evict_if_idle();
    }

    /// Removes a waiter. `false`: it is not in the queue.
    pub(super) fn cancel(&self, serial: u64) -> bool {
        let was_waiting = self.semaphore.cancel(serial);
        self.evict_if_idle();
        was_waiting
    }

    /// Removes the entry if nobody uses it and the shard has enough of such. A thread whose lock has kept
    /// another one from that does so itself when it has unlocked the semaphore.
    pub(super) fn evict_if_idle(&self) {
        if let Some(shard) = &self.overflow {
            // Of two threads one sees what the other did before: the release, or that it is unlocked.
            fence(SeqCst);
            if self.semaphore.held() == 0 {
                shard.evict(self);
            }
        }
    }
}
