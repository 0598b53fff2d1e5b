//! The limits that operators have set.

use crate::{
    semaphore::{CompactKey, Key, LimitInfo, Policy},
    sync::{AtomicU64, Mutex},
};
use std::{collections::HashMap, sync::atomic::Ordering::Relaxed, time::SystemTime};

/// The limits of a store. Each key that is in a table has its own there; here all are remembered.
#[derive(Default)]
pub(super) struct Limits {
    /// How many there are: without any, none is looked for.
    count: AtomicU64,
    /// By policy and key; without a key that of the policy.
    all: Mutex<HashMap<(Policy, Option<CompactKey>), LimitInfo>>,
}

impl Limits {
    /// The limit of a key, if one is set.
    pub(super) fn find(&self, policy: &Policy, key: &Key) -> Option<u32> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        self.find_listed(policy, &CompactKey::new(key))
    }

    /// Like `find`, for a compact key.
    pub(super) fn find_listed(&self, policy: &Policy, key: &CompactKey) -> Option<u32> {
        let all = self.all.lock();
        let of = |key| all.get(&(policy.clone(), key));
        let set = of(Some(key.clone())).or_else(|| of(None));
        set.map(|set| set.limit)
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
        let of = (policy.clone(), key);
        match limit {
            Some(limit) => {
                let mut info = LimitInfo::new(policy.clone(), stored, limit, SystemTime::now());
                info.note = note;
                all.insert(of, info);
            }
            None => drop(all.remove(&of)),
        }
        self.count.store(all.len() as u64, Relaxed);
    }

    pub(super) fn list(&self) -> Vec<LimitInfo> {
        self.all.lock().values().cloned().collect()
    }
}
