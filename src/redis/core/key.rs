//! What is known of a semaphore that this process has claimed.

use super::{
    id::{At, CallId},
    time::{FULL_FOR, Time},
};
use slab::Slab;
use std::{
    collections::{BTreeSet, HashMap},
    ops::{Index, IndexMut},
    sync::Arc,
};

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) name: Arc<str>,
    /// How many leases of this process have it as a level. With none it is forgotten.
    pub(super) leases: u32,
    /// How many units the permits of this process have of it.
    pub(super) units: u32,
    /// The leases whose release has no answer yet.
    pub(super) releases: BTreeSet<At>,
    /// The last call that begins with them, as far as they are not before it on its connection.
    pub(super) released_in: CallId,
    /// The semaphore counts as full until this time.
    full_until: Time,
}

impl Key {
    /// Notes that there is no room for another claim like the last one, or that claims wait.
    pub(super) fn note_full(&mut self, now: Time) {
        self.full_until = now + FULL_FOR;
    }

    /// True if other claims may wait or be refused until the next release arrives.
    pub(super) fn is_full(&self, now: Time) -> bool {
        now < self.full_until
    }
}

/// The semaphores that this process has claimed, by a number of each.
#[derive(Debug, Default)]
pub(super) struct Keys {
    all: Slab<Key>,
    numbers: HashMap<Arc<str>, usize>,
}

impl Keys {
    /// The number of a semaphore.
    pub(super) fn number(&mut self, name: &Arc<str>) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.all.insert(Key {
            name: Arc::clone(name),
            ..Key::default()
        });
        self.numbers.insert(Arc::clone(name), number);
        number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.numbers.is_empty()
    }

    pub(super) fn leave(&mut self, number: usize) {
        let key = &mut self.all[number];
        key.leases -= 1;
        if key.leases == 0 {
            let key = self.all.remove(number);
            self.numbers.remove(&key.name);
        }
    }
}

impl Index<usize> for Keys {
    type Output = Key;

    fn index(&self, number: usize) -> &Key {
        &self.all[number]
    }
}

impl IndexMut<usize> for Keys {
    fn index_mut(&mut self, number: usize) -> &mut Key {
        &mut self.all[number]
    }
}
