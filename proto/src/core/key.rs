//! The state of the semaphores that this process has claimed.

use super::{
    id::{CallId, DebtId},
    permit::ClaimedLevel,
    time::{FULL_FOR, Time},
};
use crate::verbs::{Acquired, Queued};
use slab::Slab;
use std::{
    collections::{BTreeSet, HashMap},
    mem,
    ops::{Index, IndexMut},
    sync::Arc,
};

#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) name: Arc<str>,
    /// The number of levels of this process's permits and debts. At 0 the key is removed.
    pub(super) users: u32,
    /// The units that count in this process's share: those of permits and of sent claims (rule 12).
    pub(super) counted: u32,
    /// The debts that no answered release has settled.
    pub(super) debts: BTreeSet<DebtId>,
    /// The last call that begins with the releases of these debts, except those that precede it on its connection.
    pub(super) released_in: CallId,
    /// The semaphore counts as full until this time.
    full_until: Time,
}

impl KeyState {
    /// Notes that the key has no room for another claim like the last one, or that claims wait for it.
    pub(super) fn note_full(&mut self, now: Time) {
        self.full_until = now + FULL_FOR;
    }

    /// True if other claims may wait or be refused until the next release arrives.
    pub(super) fn is_full(&self, now: Time) -> bool {
        now < self.full_until
    }
}

/// The semaphores that this process has claimed, by number.
#[derive(Debug, Default)]
pub(super) struct KeyStates {
    all: Slab<KeyState>,
    numbers: HashMap<Arc<str>, usize>,
    full: FullTimes,
}

/// The times until which forgotten semaphores count as full. A client that sends one request after the other leaves its
/// semaphore without a lease between two requests.
#[derive(Debug, Default)]
struct FullTimes {
    recent: HashMap<Arc<str>, Time>,
    /// The previous `recent`.
    older: HashMap<Arc<str>, Time>,
    /// The time at which `recent` began.
    since: Time,
}

impl FullTimes {
    /// The most semaphores in `recent`, to bound the memory.
    const MOST: usize = 1_024;

    fn note(&mut self, key: KeyState, now: Time) {
        if self.recent.len() >= Self::MOST || self.since + FULL_FOR <= now {
            (self.older, self.since) = (mem::take(&mut self.recent), now);
        }
        self.recent.insert(key.name, key.full_until);
    }

    fn until(&self, name: &str) -> Time {
        let until = self.recent.get(name).or_else(|| self.older.get(name));
        until.copied().unwrap_or_default()
    }
}

impl KeyStates {
    /// The number of a semaphore, which is added if it is new.
    pub(super) fn number(&mut self, name: &Arc<str>) -> usize {
        let number = self.numbers.entry(Arc::clone(name));
        *number.or_insert_with(|| {
            self.all.insert(KeyState {
                name: Arc::clone(name),
                full_until: self.full.until(name),
                ..KeyState::default()
            })
        })
    }

    /// After the answer to an acquire of these levels, notes which of their semaphores have no room for another claim
    /// like this one.
    pub(super) fn note_answer(&mut self, levels: &[ClaimedLevel], acquired: &Acquired, now: Time) {
        let full = match acquired {
            Acquired::Granted(grants) => return self.note_grant(levels, grants, now),
            Acquired::Full { level, .. }
            | Acquired::QueueFull { level, .. }
            | Acquired::Paused { level, .. }
            | Acquired::Queued(Queued { level, .. }) => levels.get(*level),
            Acquired::Revoked => None,
        };
        if let Some(level) = full {
            self[level.key].note_full(now);
        }
    }

    /// The same after a grant. `grants` has the token of each level, and the units that are held there.
    pub(super) fn note_grant(&mut self, levels: &[ClaimedLevel], grants: &[(u64, u32)], now: Time) {
        for (level, (_, held)) in levels.iter().zip(grants) {
            if held.saturating_add(level.units.id.weight) > level.units.id.limit {
                self[level.key].note_full(now);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.numbers.is_empty()
    }

    /// Removes a user of a semaphore, and the semaphore with the last.
    pub(super) fn remove_user(&mut self, number: usize, now: Time) {
        let key = &mut self.all[number];
        key.users -= 1;
        if key.users == 0 {
            let key = self.all.remove(number);
            self.numbers.remove(&key.name);
            if key.is_full(now) {
                self.full.note(key, now);
            }
        }
    }
}

impl Index<usize> for KeyStates {
    type Output = KeyState;

    fn index(&self, number: usize) -> &KeyState {
        &self.all[number]
    }
}

impl IndexMut<usize> for KeyStates {
    fn index_mut(&mut self, number: usize) -> &mut KeyState {
        &mut self.all[number]
    }
}

#[cfg(test)]
mod tests {
    use super::{FULL_FOR, FullTimes, KeyStates, Time};
    use std::time::Duration;

    /// Claims a semaphore, finds it full, and forgets it.
    fn fill(keys: &mut KeyStates, name: &str, now: Time) {
        let number = keys.number(&name.into());
        keys[number].users += 1;
        keys[number].note_full(now);
        keys.remove_user(number, now);
    }

    fn is_full(keys: &mut KeyStates, name: &str, now: Time) -> bool {
        let number = keys.number(&name.into());
        keys[number].users += 1;
        let is_full = keys[number].is_full(now);
        keys.remove_user(number, now);
        is_full
    }

    #[test]
    fn a_forgotten_semaphore_counts_as_full_for_as_long_as_one_in_use() {
        let (mut keys, start) = (
            KeyStates::default(),
            Time::default() + Duration::from_secs(100),
        );
        fill(&mut keys, "a", start);
        fill(&mut keys, "b", start + FULL_FOR / 2);
        // Times in steps of two fifths of FULL_FOR: "a" is full for 2.5 steps, and "b" for 3.75.
        for (at, expected) in [(1, [true, true]), (3, [false, true]), (4, [false, false])] {
            let now = start + FULL_FOR * at * 2 / 5;
            assert_eq!(
                ["a", "b"].map(|name| is_full(&mut keys, name, now)),
                expected
            );
        }
    }

    #[test]
    fn the_memory_of_full_semaphores_is_bounded() {
        let (mut keys, now) = (KeyStates::default(), Time::default());
        for number in 0..FullTimes::MOST * 5 {
            fill(&mut keys, &number.to_string(), now);
        }
        assert!(keys.full.recent.len() + keys.full.older.len() <= FullTimes::MOST * 2);
        assert!(is_full(
            &mut keys,
            &(FullTimes::MOST * 5 - 1).to_string(),
            now
        ));
    }
}
