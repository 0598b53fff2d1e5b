//! The limits that operators have set.

use crate::{
    semaphore::{Key, LimitInfo, Policy, StoredKey},
    sync::{AtomicU64, Mutex},
};
use std::{collections::HashMap, sync::atomic::Ordering::Relaxed, time::SystemTime};

/// By policy and key; without a key that of the policy.
type All = HashMap<(Policy, Option<Key>), Set>;

/// The limits of a store. Each key that is in the table has its own with its counters; here all are remembered.
#[derive(Default)]
pub(super) struct Limits {
    /// How many there are: without any, none is looked for.
    count: AtomicU64,
    all: Mutex<All>,
}

struct Set {
    limit: u32,
    note: Option<String>,
    since: SystemTime,
}

impl Limits {
    /// The limit of a key, if one is set.
    pub(super) fn find(&self, policy: &Policy, key: &Key) -> Option<u32> {
        match self.count.load(Relaxed) {
            0 => None,
            _ => self.with(policy, key, |limit| limit),
        }
    }

    /// Passes the limit of a key on while no other can be set.
    pub(super) fn with<R>(
        &self,
        policy: &Policy,
        key: &Key,
        take: impl FnOnce(Option<u32>) -> R,
    ) -> R {
        let all = self.all.lock();
        let of = |key| all.get(&(policy.clone(), key));
        let set = of(Some(key.clone())).or_else(|| of(None));
        take(set.map(|set| set.limit))
    }

    pub(super) fn set(
        &self,
        policy: &Policy,
        key: Option<&Key>,
        limit: Option<u32>,
        note: Option<String>,
    ) {
        let mut all = self.all.lock();
        let of = (policy.clone(), key.cloned());
        let since = SystemTime::now();
        match limit {
            Some(limit) => drop(all.insert(of, Set { limit, note, since })),
            None => drop(all.remove(&of)),
        }
        self.count.store(all.len() as u64, Relaxed);
    }

    pub(super) fn list(&self) -> Vec<LimitInfo> {
        let all = self.all.lock();
        let infos = all.iter().map(|((policy, key), set)| {
            let key = key.clone().map(StoredKey::whole);
            let mut info = LimitInfo::new(policy.clone(), key, set.limit, set.since);
            info.note.clone_from(&set.note);
            info
        });
        infos.collect()
    }
}
