//! A shard: some of the store's keys, in a table under one lock.

use super::{
    holders::{Details, Holders, Now, infos},
    key_semaphore::{KeySemaphore, Refusal},
    locked::Locked,
    queue::{Acquired, Position},
};
use crate::{
    observe::LostBy,
    semaphore::{AcquireError, Claim, Key, Policy, SemaphoreId, Units, Usage, Wait},
    sync::Mutex,
};
use hashbrown::hash_table::HashTable;
use std::{ptr, sync::Arc};

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
    semaphore: KeySemaphore,
    hash: u64,
    policy: Policy,
    key: Key,
    holders: Holders,
}

impl Shard {
    /// The entry of a claim's key, inserted if there is none.
    pub(super) fn entry(self: &Arc<Self>, hash: u64, claim: &Claim) -> Arc<Entry> {
        let mut table = self.0.lock();
        let (policy, key) = (claim.policy(), claim.key());
        let found = table.find(hash, policy, key);
        match found {
            Some(entry) => Arc::clone(entry),
            None => self.insert(&mut table, hash, claim),
        }
    }

    /// The entry of a key, if there is one.
    pub(super) fn find(&self, hash: u64, policy: &Policy, key: &Key) -> Option<Arc<Entry>> {
        let table = self.0.lock();
        // Not `Table::find`: with two callers that would not be inlined where every claim passes.
        let mut same_hash = table.entries.iter_hash(hash);
        same_hash
            .find(|entry| entry.is_of(hash, policy, key))
            .cloned()
    }

    fn insert(self: &Arc<Self>, table: &mut Table, hash: u64, claim: &Claim) -> Arc<Entry> {
        table.count_insert();
        let over_capacity = table.entries.len() >= IDLE_CAPACITY;
        let entry = Arc::new(Entry {
            overflow: over_capacity.then(|| Arc::clone(self)),
            semaphore: KeySemaphore::new(table.last_token),
            hash,
            policy: claim.policy().clone(),
            key: claim.key().clone(),
            holders: Holders::default(),
        });
        let hash_of = |entry: &Arc<Entry>| entry.hash;
        table
            .entries
            .insert_unique(hash, Arc::clone(&entry), hash_of);
        entry
    }

    /// Removes the entry if it is still idle.
    #[cold]
    fn evict(&self, entry: &Entry) {
        let mut table = self.0.lock();
        let is_it = |other: &Arc<Entry>| ptr::eq(Arc::as_ptr(other), entry);
        let Table {
            entries,
            last_token,
            ..
        } = &mut *table;
        let Ok(found) = entries.find_entry(entry.hash, is_it) else {
            return;
        };
        if let Some(token) = entry.semaphore.retire() {
            *last_token = token.max(*last_token);
            found.remove();
        }
    }

    /// The number of keys with permits or waiters.
    pub(super) fn keys(&self) -> usize {
        let table = self.0.lock();
        let busy = |entry: &&Arc<Entry>| entry.semaphore.is_busy();
        table.entries.iter().filter(busy).count()
    }

    /// The keys that have permits or waiters under a policy, by their hashes, from this hash on.
    pub(super) fn keys_of(&self, policy: &Policy, from: u64) -> Vec<(u64, Key)> {
        let table = self.0.lock();
        let entries = table.entries.iter().filter(|entry| entry.hash >= from);
        let busy = entries.filter(|entry| entry.policy == *policy && entry.semaphore.is_busy());
        busy.map(|entry| (entry.hash, entry.key.clone())).collect()
    }

    #[cfg(test)]
    pub(super) fn keys_in_table(&self) -> Vec<Key> {
        let table = self.0.lock();
        table
            .entries
            .iter()
            .map(|entry| entry.key.clone())
            .collect()
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

    pub(super) fn holders(&self) -> &Holders {
        &self.holders
    }

    pub(super) fn usage(&self, now: Now) -> Usage {
        let Some(locked) = self.semaphore.lock() else {
            return Usage::new(now.shown(), 0, Vec::new(), Vec::new());
        };
        // Under the lock nothing is acquired, so a unit that changes its permit is not shown twice.
        let units = locked.held();
        let (permits, (granted, waiting)) = (self.holders.all(), locked.details());
        drop(locked);
        // A release during the lock leaves the eviction to this call.
        self.evict_if_idle();
        let waiting = waiting.iter().map(|details| details.info(now)).collect();
        Usage::new(now.shown(), units, infos(&permits, &granted, now), waiting)
    }

    /// Ends a permit or a wait of this serial. `false`: there is none.
    pub(super) fn revoke(&self, serial: u64) -> bool {
        // The queue first: a claim moves from there to the holders.
        if let Some(is_revoked) = self.semaphore.revoke(serial) {
            return is_revoked;
        }
        let Some(permit) = self.holders.remove(serial) else {
            return false;
        };
        let is_held = permit.weight() > 0;
        permit.end(LostBy::Revoked);
        is_held
    }

    pub(super) fn try_acquire(&self, units: Units) -> Result<Acquired, Refusal> {
        self.semaphore.try_acquire(units)
    }

    pub(super) fn enqueue(
        &self,
        units: Units,
        wait: Wait,
        details: Arc<Details>,
    ) -> Result<Option<Position>, AcquireError> {
        self.semaphore.enqueue(units, wait, details)
    }

    pub(super) fn begin_permit(&self, position: &Position) -> bool {
        self.semaphore.queue.lock().begin_permit(position.number)
    }

    pub(super) fn end_permit(&self, position: &Position) -> bool {
        self.semaphore.queue.lock().end_permit(position)
    }

    pub(super) fn lock(&self) -> Option<Locked<'_>> {
        self.semaphore.lock()
    }

    pub(super) fn release(&self, weight: u32) {
        self.semaphore.release(weight);
        self.evict_if_idle();
    }

    pub(super) fn cancel(&self, position: &Position, weight: u32) {
        self.semaphore.cancel(position, weight);
        self.evict_if_idle();
    }

    /// Removes the entry if it is unused and the shard has enough idle ones.
    pub(super) fn evict_if_idle(&self) {
        if let Some(shard) = &self.overflow
            && self.semaphore.held() == 0
        {
            shard.evict(self);
        }
    }
}
