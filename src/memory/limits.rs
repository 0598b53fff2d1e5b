//! The limits that operators have set.

use crate::{
    semaphore::{CompactKey, Key, LimitInfo, Policy},
    sync::{AtomicU64, Mutex},
};
use std::{collections::HashMap, sync::atomic::Ordering::Relaxed, time::SystemTime};

/// All limits that operators have set in a store. The store's entry for a key in use has a copy of its limit, so that
/// acquires of this key need no lookup here.
#[derive(Default)]
pub(super) struct Limits {
    /// The number of limits. While it is 0, lookups do not take the lock.
    count: AtomicU64,
    /// The limits by policy and key. The limit of a whole policy has no key.
    all: Mutex<HashMap<(Policy, Option<CompactKey>), LimitInfo>>,
}

impl Limits {
    /// Returns the limit of a key, or else that of its policy, if one is set.
    pub(super) fn find(&self, policy: &Policy, key: &Key) -> Option<u32> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        self.find_compact(policy, &CompactKey::new(key))
    }

    /// Like `find`, for a compact key.
    pub(super) fn find_compact(&self, policy: &Policy, key: &CompactKey) -> Option<u32> {
        let all = self.all.lock();
        let get = |key| all.get(&(policy.clone(), key));
        let info = get(Some(key.clone())).or_else(|| get(None));
        info.map(|info| info.limit)
    }

    pub(super) fn set(
        &self,
        policy: &Policy,
        key: Option<&Key>,
        limit: Option<u32>,
        note: Option<String>,
    ) {
        let mut all = self.all.lock();
        let key = key.map(CompactKey::new);
        let stored = key.as_ref().map(Into::into);
        let subject = (policy.clone(), key);
        match limit {
            Some(limit) => {
                let mut info = LimitInfo::new(policy.clone(), stored, limit, SystemTime::now());
                info.note = note;
                all.insert(subject, info);
            }
            None => drop(all.remove(&subject)),
        }
        self.count.store(all.len() as u64, Relaxed);
    }

    pub(super) fn list(&self) -> Vec<LimitInfo> {
        self.all.lock().values().cloned().collect()
    }
}
