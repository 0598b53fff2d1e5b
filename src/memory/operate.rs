//! Usage, revocations and pauses of the store in memory, for operators.

use super::{
    entry::{ActivePause, Entry},
    holders::{Now, infos, serial_of},
    shard::SHARDS,
    store::MemorySemaphore,
};
use crate::{
    observe::contain,
    semaphore::{
        BoxFuture, Claim, Key, KeyCounts, KeyPage, KeyStream, LimitInfo, LimitStream, Operate,
        Pause, PauseInfo, PermitEnd, Policy, Process, ReadyStream, StoreError, StoredKey, Usage,
    },
};
use std::time::Duration;
use tokio::{task::yield_now, time::Instant};

/// Each future except that of `keys_page` answers at its first poll. Only a store [with
/// holders](super::Builder::holders) lists permits. Without holders, [`units`](Usage::units) counts them, and only
/// waiting claims can be revoked.
///
/// `now` and `since` of a usage, and the times of a pause, follow Tokio's clock. Unless a test pauses that, they differ
/// from the system's clock by at most a second. A pause ends with the store at the latest.
impl Operate for MemorySemaphore {
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        let (store, policy, key) = (self.clone(), policy.clone(), key.clone());
        Box::pin(async move { Ok(store.usage_now(&policy, &key)) })
    }

    fn keys(&self, policy: &Policy) -> KeyStream {
        let (shards, policy) = (self.0.shards.clone().into_iter(), policy.clone());
        // No lock is held for longer than one shard takes.
        let keys = shards.flat_map(move |shard| shard.keys_of(&policy, 0));
        Box::pin(ReadyStream(keys.map(|(_, key)| Ok(key))))
    }

    fn keys_page(
        &self,
        policy: &Policy,
        cursor: Option<&str>,
        time: Duration,
    ) -> BoxFuture<Result<Option<KeyPage>, StoreError>> {
        let from = cursor.map_or(Some((0, 0)), position_of);
        let (store, policy) = (self.clone(), policy.clone());
        Box::pin(async move {
            let Some(from) = from else { return Ok(None) };
            Ok(Some(store.page(&policy, from, time).await))
        })
    }

    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
        let (store, policy, key) = (self.clone(), policy.clone(), key.clone());
        let serial = serial_of(id);
        // Revokes only when polled, as the store in Redis does.
        Box::pin(
            async move { Ok(serial.is_some_and(|serial| store.revoke_now(&policy, &key, serial))) },
        )
    }

    fn set_limit(
        &self,
        policy: &Policy,
        key: Option<&Key>,
        limit: Option<u32>,
        note: &str,
    ) -> BoxFuture<Result<(), StoreError>> {
        let checked = LimitInfo::check(policy, key);
        let (store, policy, key) = (self.clone(), policy.clone(), key.cloned());
        let note = LimitInfo::note_of(note);
        Box::pin(async move {
            checked?;
            store.0.limits.set(&policy, key.as_ref(), limit, note);
            store.0.update_limits(&policy, key.as_ref());
            Ok(())
        })
    }

    fn limits(&self) -> LimitStream {
        Box::pin(ReadyStream(self.0.limits.list().into_iter().map(Ok)))
    }

    fn pause(
        &self,
        policy: &Policy,
        key: &Key,
        time: Duration,
        note: &str,
    ) -> BoxFuture<Result<(), StoreError>> {
        let checked = Pause::check(policy, key);
        let claim = Claim::new(key.clone()).with_policy(policy.clone());
        let (store, pause) = (self.clone(), Pause::new(time, note));
        Box::pin(async move {
            checked?;
            if let Some(pause) = pause {
                store.0.pause(&claim, &pause);
            }
            Ok(())
        })
    }

    fn resume(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<bool, StoreError>> {
        let (store, policy, key) = (self.clone(), policy.clone(), key.clone());
        Box::pin(async move {
            let end = |entry: &mut Entry, _: &mut _| entry.end_pause();
            let ended = store.0.change_each(&policy, &key, end);
            Ok(ended.contains(&true))
        })
    }

    fn counts(
        &self,
        policy: &Policy,
        keys: &[StoredKey],
    ) -> BoxFuture<Result<Vec<KeyCounts>, StoreError>> {
        let (store, policy, keys) = (self.clone(), policy.clone(), keys.to_vec());
        let count = move |key| store.count_now(&policy, key);
        Box::pin(async move { Ok(keys.into_iter().map(count).collect()) })
    }

    fn processes(&self) -> BoxFuture<Result<Vec<Process>, StoreError>> {
        Box::pin(async { Ok(vec![Process::current()]) })
    }
}

impl MemorySemaphore {
    async fn page(&self, policy: &Policy, from: ListPosition, time: Duration) -> KeyPage {
        let (start, mut keys, mut at) = (Instant::now(), Vec::new(), Some(from));
        while let Some(position) = at {
            at = self.list(policy, position, &mut keys);
            if keys.len() == KeyPage::MOST || start.elapsed() >= time {
                break;
            }
            yield_now().await;
        }
        KeyPage::new(keys, at.map(|(shard, hash)| format!("{shard}.{hash:x}")))
    }

    /// Adds the keys of one shard while the page has room. Returns the position of the next keys.
    fn list(
        &self,
        policy: &Policy,
        at: ListPosition,
        keys: &mut Vec<StoredKey>,
    ) -> Option<ListPosition> {
        let (shard, hash) = at;
        let mut found = self.0.shards.get(shard)?.keys_of(policy, hash);
        found.sort_unstable_by_key(|(hash, _)| *hash);
        let room = KeyPage::MOST - keys.len();
        let rest = found.get(room).map(|(hash, _)| (shard, *hash));
        let added = found.into_iter().take(room);
        keys.extend(added.map(|(_, key)| key));
        let (shard, hash) = rest.unwrap_or((shard + 1, 0));
        (shard < SHARDS).then_some((shard, hash))
    }

    fn usage_now(&self, policy: &Policy, key: &Key) -> Usage {
        let now = self.0.clock.now();
        let (mut units, mut held, mut waiting) = (0_u32, Vec::new(), Vec::new());
        let (mut budgets, mut pause) = (Vec::new(), None);
        // `change_each` instead of a read, because looking at a pause that is over removes it.
        self.0.change_each(policy, key, |entry, _| {
            let (permits, waiters) = entry.queue.listed(entry.limit);
            held.extend(permits);
            waiting.extend(waiters);
            units = units.saturating_add(entry.used());
            budgets.extend(entry.budget_usage());
            pause = entry.pause_in_force().map(|pause| pause_info(pause, now));
        });
        let (held, waiting) = (infos(&held, now), infos(&waiting, now));
        let mut usage = Usage::new(now.system, units, held, waiting);
        (usage.budgets, usage.pause) = (budgets, pause);
        usage.under(self.0.limits.find(policy, key))
    }

    fn count_now(&self, policy: &Policy, key: StoredKey) -> KeyCounts {
        let now = self.0.clock.now();
        let compact = key.compact();
        let mut counts = KeyCounts::new(key, 0, 0);
        if let Some(compact) = compact {
            self.0.change_each_compact(policy, &compact, |entry, _| {
                counts.units = counts.units.saturating_add(entry.used());
                counts.waiting += entry.queue.len() as u32;
                counts.pause = entry.pause_in_force().map(|pause| pause_info(pause, now));
            });
        }
        counts
    }

    fn revoke_now(&self, policy: &Policy, key: &Key, serial: u64) -> bool {
        let remove = |entry: &mut Entry, _: &mut _| {
            let (waiting, permit) = (
                entry.queue.remove_waiter(serial),
                entry.queue.unlist_permit(serial),
            );
            let is_it = waiting.is_some() || permit.is_some();
            is_it.then_some((entry.id, waiting, permit))
        };
        let removed = self.0.change_each(policy, key, remove);
        let Some((id, waiting, permit)) = removed.into_iter().flatten().next() else {
            return false;
        };
        // Dropping the callback wakes the waiter's task, so it is dropped without the lock.
        contain(|| drop(waiting));
        if let Some((details, taken)) = permit {
            // Notify the holder before others get its units.
            details.notify_revoked();
            let counted = self.0.change_each(policy, key, |entry, counts| {
                let is_it = entry.id == id;
                is_it.then(|| entry.free(taken, PermitEnd::Lost, counts))
            });
            let counted = counted.into_iter().flatten().flatten();
            counted.for_each(|units| units.record());
        }
        true
    }
}

fn pause_info(paused: &ActivePause, now: Now) -> PauseInfo {
    let at = |instant| now.at(instant).unwrap_or(now.system);
    let mut info = PauseInfo::new(at(paused.since), at(paused.until));
    info.note.clone_from(&paused.note);
    info
}

/// The position at which a list continues: a shard, and the hash of a key in it.
type ListPosition = (usize, u64);

fn position_of(cursor: &str) -> Option<ListPosition> {
    let (shard, hash) = cursor.split_once('.')?;
    let shard = shard.parse().ok().filter(|shard| *shard < SHARDS)?;
    let hash = u64::from_str_radix(hash, 16).ok()?;
    Some((shard, hash))
}
