//! A shard: some of the store's keys, in a table under one lock.

use super::{
    entry::{Counts, Entry, EntryMut},
    holders::Details,
    limits::Limits,
    queue::{KeyGrant, KeyRefusal, QueuedClaim, WaiterNotice, deliver},
};
use crate::{
    semaphore::{AcquireError, Claim, Key, Pause, Policy, StoredKey},
    sync::{Mutex, MutexGuard},
};
use hashbrown::hash_table::HashTable;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The number of shards of a store. Each shard has a separate lock, which is held for every decision about one of its
/// keys.
pub(super) const SHARDS: usize = 64;

/// The largest number of idle entries that a shard keeps, because the next claim is likely to be for a recent key. If
/// more entries are in use, it keeps up to their number. A capacity of 128 was slower in a measurement with 10,000
/// keys.
pub(super) const IDLE_CAPACITY: usize = 64;

/// A table of entries. Aligned so that no two shards share a cache line.
#[repr(align(128))]
pub(super) struct Shard(Mutex<ShardTable>);

pub(super) struct ShardTable {
    /// One for each policy, key and window that claims have named. Limits of concurrency have no window.
    entries: HashTable<Entry>,
    counts: Counts,
    ids: EntryIds,
    limits: Arc<Limits>,
}

/// Hands out ids for entries, which are unique among all stores in the process. A table takes a block of ids at a time,
/// so that threads that add keys to different shards rarely write to the same memory.
#[derive(Default)]
struct EntryIds(u64);

impl EntryIds {
    const BLOCK: u64 = 1 << 16;

    fn next(&mut self) -> u64 {
        static BLOCKS: AtomicU64 = AtomicU64::new(0);
        if self.0.is_multiple_of(Self::BLOCK) {
            self.0 = BLOCKS.fetch_add(1, Relaxed) * Self::BLOCK;
        }
        self.0 += 1;
        self.0
    }
}

/// The place of a key: its hash, and its shard, which the hash determines.
pub(super) type KeyPlace<'a> = (u64, &'a Arc<Shard>);

/// The number of a hash's shard. The hash table inside a shard uses the lowest and the highest bits.
pub(super) fn shard_number(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

impl Shard {
    pub(super) fn new(limits: &Arc<Limits>) -> Self {
        Self(Mutex::new(ShardTable {
            entries: HashTable::new(),
            counts: Counts::default(),
            ids: EntryIds::default(),
            limits: Arc::clone(limits),
        }))
    }

    /// Acquires the units of a claim, if they fit, no claim waits, and the key is not paused. Lists the permit for
    /// operators under the details `listed`, if given.
    #[inline]
    pub(super) fn acquire(
        &self,
        hash: u64,
        claim: &Claim,
        listed: Option<&Arc<Details>>,
    ) -> Result<KeyGrant, KeyRefusal> {
        let (mut table, units) = (self.0.lock(), claim.checked_units());
        let (entry, counts) = table.entry(hash, claim);
        if !entry.admits(units) {
            let (refusal, notices) = (entry.refusal(units), entry.look_at_budget_queue(counts));
            drop(table);
            deliver(notices);
            return Err(refusal);
        }
        Ok(entry.acquire(units, counts, listed))
    }

    /// Adds a claim to the queue of its key, unless the key is paused for longer than `wait`. Grants the claim at once
    /// if it fits. Returns the entry's id, and the end of its pause.
    pub(super) fn join(
        &self,
        hash: u64,
        claim: &Claim,
        waiting: QueuedClaim,
        wait: Duration,
        max_waiting: u32,
    ) -> Result<(u64, Option<Instant>), AcquireError> {
        let mut table = self.0.lock();
        let (entry, counts) = table.entry(hash, claim);
        entry.join(waiting, wait, max_waiting)?;
        // If the pause were read after the grant, it could end in between: it would have prevented the grant, but would
        // not be returned, and this claim would not know when to look again.
        let pause = entry.pause_in_force().map(|pause| pause.until);
        let (id, granted) = (entry.id, entry.grant(counts));
        drop(table);
        deliver(granted);
        Ok((id, pause))
    }

    /// Pauses the key of a claim under its policy: the entries of all windows, and the entry without a window.
    pub(super) fn pause(&self, hash: u64, claim: &Claim, pause: &Pause) {
        let mut table = self.0.lock();
        let id = table.entry(hash, claim).0.id;
        let notices = table.pause_windows(hash, id, pause);
        drop(table);
        deliver(notices.unwrap_or_default());
    }

    /// The same for the key of an entry. Returns false if the entry does not exist.
    pub(super) fn pause_entry(&self, hash: u64, id: u64, pause: &Pause) -> bool {
        let notices = self.0.lock().pause_windows(hash, id, pause);
        let is_there = notices.is_some();
        deliver(notices.unwrap_or_default());
        is_there
    }

    /// Changes the selected entry of this hash, if it exists. Then grants to the waiters that fit, and notifies them
    /// without the lock.
    #[inline]
    pub(super) fn change<R>(
        &self,
        hash: u64,
        is_it: impl Fn(&Entry) -> bool,
        change: impl FnOnce(&mut Entry, &mut Counts) -> R,
    ) -> Option<R> {
        let mut table = self.0.lock();
        let ShardTable {
            entries, counts, ..
        } = &mut *table;
        let entry = entries.find_mut(hash, is_it)?;
        let changed = change(entry, counts);
        let granted = entry.grant(counts);
        evict(entries, counts);
        drop(table);
        deliver(granted);
        Some(changed)
    }

    /// Changes all selected entries of this hash, each as [`change`](Self::change) does.
    pub(super) fn change_each<R>(
        &self,
        hash: u64,
        is_it: impl Fn(&Entry) -> bool,
        mut change: impl FnMut(&mut Entry, &mut Counts) -> R,
    ) -> Vec<R> {
        let mut table = self.0.lock();
        let ShardTable {
            entries, counts, ..
        } = &mut *table;
        let (mut changed, mut notices) = (Vec::new(), Vec::new());
        for entry in entries.iter_hash_mut(hash).filter(|entry| is_it(entry)) {
            changed.push(change(entry, counts));
            notices.extend(entry.grant(counts));
        }
        evict(entries, counts);
        drop(table);
        deliver(notices);
        changed
    }

    /// Applies the limits that operators have set or removed, for a policy or for one of its keys.
    pub(super) fn update_limits(&self, policy: &Policy, key: Option<&Key>) {
        let mut locked = self.0.lock();
        let (table, mut notices) = (&mut *locked, Vec::new());
        for entry in &mut table.entries {
            if entry.is_of(policy, key) {
                let limit = table.limits.find_compact(policy, &entry.key);
                notices.extend(entry.set_limit(limit, &mut table.counts));
            }
        }
        drop(locked);
        deliver(notices);
    }

    /// The number of keys with permits or waiters.
    pub(super) fn busy_keys(&self) -> usize {
        let table = self.0.lock();
        table.entries.iter().filter(|entry| entry.is_busy()).count()
    }

    /// Returns the keys of a policy that have permits or waiters or are paused, with their hashes. Skips hashes below
    /// `from`.
    pub(super) fn keys_of(&self, policy: &Policy, from: u64) -> Vec<(u64, StoredKey)> {
        let table = self.0.lock();
        let is_it = |entry: &Entry| entry.is_of(policy, None) && entry.is_in_use();
        // A key with several windows is listed once.
        let is_listed_before = |entry: &Entry| {
            let mut same = table.entries.iter_hash(entry.hash);
            same.any(|other| other.id < entry.id && other.key == entry.key && is_it(other))
        };
        let entries = table.entries.iter();
        let entries = entries.filter(|entry| entry.hash >= from && is_it(entry));
        let entries = entries.filter(|entry| !is_listed_before(entry));
        entries
            .map(|entry| (entry.hash, StoredKey::from(&entry.key)))
            .collect()
    }

    #[cfg(test)]
    pub(super) fn keys_in_table(&self) -> Vec<StoredKey> {
        let table = self.0.lock();
        let keys = table.entries.iter().map(|entry| (&entry.key).into());
        keys.collect()
    }
}

/// The tables of some shards, all locked in the order of their numbers, so that two threads cannot deadlock.
pub(super) struct Tables<'a>([Option<MutexGuard<'a, ShardTable>>; SHARDS]);

impl<'a> Tables<'a> {
    pub(super) fn lock(places: impl Iterator<Item = KeyPlace<'a>>) -> Self {
        let mut shards = [None; SHARDS];
        places.for_each(|(hash, shard)| shards[shard_number(hash)] = Some(&shard.0));
        Self(shards.map(|shard| shard.map(|table| table.lock())))
    }

    /// Returns the table of a place. The place must have been given to [`lock`](Self::lock), because a table that is
    /// locked only here is locked out of order.
    pub(super) fn table(&mut self, (hash, shard): KeyPlace<'a>) -> &mut ShardTable {
        self.0[shard_number(hash)].get_or_insert_with(|| shard.0.lock())
    }
}

impl ShardTable {
    /// Returns the entry of a claim's policy, key and window. Makes the entry if it does not exist.
    #[inline]
    pub(super) fn entry(&mut self, hash: u64, claim: &Claim) -> EntryMut<'_> {
        let entry = match self.entries.find_entry(hash, |entry| entry.is_for(claim)) {
            Ok(found) => found.into_mut(),
            Err(absent) => {
                // Read under the lock: a limit that is set at the same time is found here, or is applied to the new
                // entry afterwards.
                let limit = self.limits.find(claim.policy(), claim.key());
                let entries = absent.into_table();
                evict(entries, &mut self.counts);
                self.counts.idle += 1;
                let mut entry = Entry::new(self.ids.next(), hash, claim, limit);
                // The key may be paused under another window.
                let mut same = entries.iter_hash(hash);
                let same = same.find(|other| other.is_of(claim.policy(), Some(claim.key())));
                entry.pause = same.and_then(|other| other.pause.clone());
                entries
                    .insert_unique(hash, entry, |entry| entry.hash)
                    .into_mut()
            }
        };
        (entry, &mut self.counts)
    }

    /// Pauses the key of an entry under all windows; the entry of a later window copies the pause. Returns notices for
    /// waiters, or `None` if the entry does not exist.
    fn pause_windows(&mut self, hash: u64, id: u64, pause: &Pause) -> Option<Vec<WaiterNotice>> {
        let (entry, _) = self.entry_with_id(hash, id)?;
        let (policy, key) = (entry.policy.clone(), entry.key.clone());
        let same = self.entries.iter_hash_mut(hash);
        let same = same.filter(|other| other.key == key && other.policy == policy);
        Some(same.flat_map(|entry| entry.set_pause(pause)).collect())
    }

    /// Returns the entry with this id, if it exists.
    pub(super) fn entry_with_id(&mut self, hash: u64, id: u64) -> Option<EntryMut<'_>> {
        let entry = self.entries.find_mut(hash, |entry| entry.id == id)?;
        Some((entry, &mut self.counts))
    }
}

/// Evicts all idle entries, once too many are idle, except those of paused keys and of budgets with spent units.
/// Evicting them together makes room for recent keys at a small cost per entry.
#[inline]
fn evict(entries: &mut HashTable<Entry>, counts: &mut Counts) {
    if counts.idle > IDLE_CAPACITY.max(entries.len() / 2) + counts.kept {
        entries.retain(|entry| entry.is_in_use());
        counts.kept = entries.iter().filter(|entry| entry.held == 0).count();
        counts.idle = counts.kept;
        entries.shrink_to(IDLE_CAPACITY, |entry| entry.hash);
    }
}
