//! Where a key's slot is found.

use super::{Name, slot::Slot};
use crate::semaphore::Claim;
use hashbrown::hash_table::HashTable;
use std::{
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How many slots a shard keeps although nobody uses them. The next request is likely to be for a
/// key that was there before, and finding a slot costs less than making one.
pub(super) const KEPT: usize = 64;

/// After how many new keys for each slot those that are kept make room for others.
const AGE: usize = 16;

/// Some of the keys. Apart from its neighbours in memory: other threads write there.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    slots: HashTable<Arc<Slot>>,
    /// How many keys have come since idle ones made room.
    came: usize,
    /// The greatest token of the slots that are gone, so that tokens grow although keys vanish.
    last: u64,
}

impl Shard {
    /// The slot of a claim's key.
    pub(super) fn slot(self: &Arc<Self>, hash: u64, claim: &Claim) -> Arc<Slot> {
        let mut table = self.lock();
        let found = table.slots.find(hash, |slot| slot.name.is_of(hash, claim));
        match found {
            Some(slot) => Arc::clone(slot),
            None => self.insert(&mut table, hash, claim),
        }
    }

    fn insert(self: &Arc<Self>, table: &mut Table, hash: u64, claim: &Claim) -> Arc<Slot> {
        table.age();
        let Table { slots, last, .. } = table;
        let crowd = (slots.len() >= KEPT).then(|| Arc::clone(self));
        let slot = Arc::new(Slot::new(Name::new(hash, claim), *last, crowd));
        slots.insert_unique(hash, Arc::clone(&slot), |slot| slot.name.hash);
        slot
    }

    /// Takes a slot away if it is idle.
    #[cold]
    pub(super) fn forget(&self, slot: &Slot) {
        let mut table = self.lock();
        let is_it = |other: &Arc<Slot>| ptr::eq(Arc::as_ptr(other), slot);
        let Table { slots, last, .. } = &mut *table;
        let Ok(entry) = slots.find_entry(slot.name.hash, is_it) else {
            return;
        };
        if let Some(token) = slot.retire() {
            *last = token.max(*last);
            entry.remove();
        }
    }

    /// How many keys are in use.
    pub(super) fn keys(&self) -> usize {
        let table = self.lock();
        table.slots.iter().filter(|slot| slot.is_busy()).count()
    }

    /// No code that holds the lock can panic halfway, so a poisoned lock guards a sound table.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Forgets the keys that are idle, so seldom that it costs each new key next to nothing.
    fn age(&mut self) {
        let Self { slots, came, last } = self;
        *came += 1;
        if *came / AGE <= KEPT.max(slots.len()) {
            return;
        }
        *came = 0;
        slots.retain(|slot| {
            let retired = slot.retire();
            *last = retired.unwrap_or(0).max(*last);
            retired.is_none()
        });
        slots.shrink_to(KEPT, |slot| slot.name.hash);
    }
}

#[cfg(test)]
impl Shard {
    /// The keys that have a slot.
    pub(super) fn names(&self) -> Vec<crate::semaphore::Key> {
        let table = self.lock();
        table
            .slots
            .iter()
            .map(|slot| slot.name.key.clone())
            .collect()
    }
}
