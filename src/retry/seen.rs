//! The state of a layer for each policy and key, in bounded memory.

use super::{ages::Ages, mean::Mean, outage::Outage, schedule::Schedule};

/// Maximum of keys with their own schedule and ages. Further keys share them.
pub(super) const KEYS: usize = 1_024;

/// Maximum of policies with their own mean. Further policies share one.
const POLICIES: usize = 16;

/// Identifies the schedule of a key by the hashes of its policy and of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct KeyHash {
    pub(super) policy: u64,
    pub(super) key: u64,
}

#[derive(Default)]
pub(super) struct Seen {
    policies: [Mean; POLICIES],
    /// Empty until the first permit.
    held: Vec<Ages>,
    /// Empty until the first refusal.
    schedules: Vec<Option<Box<(KeyHash, Schedule)>>>,
    pub(super) outage: Outage,
}

impl Seen {
    pub(super) fn mean(&mut self, hash: KeyHash) -> &mut Mean {
        &mut self.policies[hash.policy as usize % POLICIES]
    }

    /// The held permits of this key and of keys with the same hash.
    pub(super) fn held(&mut self, hash: KeyHash) -> &mut Ages {
        if self.held.is_empty() {
            self.held.resize_with(KEYS, Ages::default);
        }
        &mut self.held[index(hash)]
    }

    /// The schedule of this key, if it was refused lately.
    pub(super) fn own(&mut self, hash: KeyHash) -> Option<&mut (KeyHash, Schedule)> {
        let found = self.schedules.get_mut(index(hash))?.as_deref_mut();
        found.filter(|(of, _)| *of == hash)
    }

    /// The schedule of this key. Keys with the same hash share a schedule that is not over, and are
    /// then told later times than necessary.
    pub(super) fn schedule(&mut self, hash: KeyHash, mean: Mean, now: f64) -> &mut Schedule {
        if self.schedules.is_empty() {
            self.schedules.resize_with(KEYS, || None);
        }
        let found = &mut self.schedules[index(hash)];
        if found
            .as_ref()
            .is_some_and(|old| old.0 != hash && old.1.is_over(now))
        {
            *found = None;
        }
        let new = || Box::new((hash, Schedule::new(mean)));
        &mut found.get_or_insert_with(new).1
    }
}

fn index(KeyHash { policy, key }: KeyHash) -> usize {
    (policy ^ key) as usize % KEYS
}
