//! The keys that share one lock.

use super::Name;
use crate::semaphore::{AcquireError, Units};
use hashbrown::hash_table::{Entry, HashTable, OccupiedEntry};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One lock and its keys.
#[derive(Default)]
pub(super) struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    slots: HashTable<Slot>,
    /// The last fencing token. It outlives the keys, so that tokens grow although keys vanish.
    token: u64,
}

/// What is held of one key. It exists only while that is more than nothing.
struct Slot {
    name: Name,
    held: u32,
}

/// What was taken: the permit's token, and how much of its key is held now.
pub(super) struct Taken {
    pub(super) token: u64,
    pub(super) held: u32,
}

impl Shard {
    /// Takes `units` of a key if there is room.
    pub(super) fn take(&self, name: &Name, units: Units) -> Result<Taken, AcquireError> {
        let Table { slots, token } = &mut *self.lock();
        let held = match entry(slots, name) {
            Entry::Occupied(mut slot) => {
                let slot = slot.get_mut();
                slot.held = add(slot.held, units)?;
                slot.held
            }
            Entry::Vacant(place) => {
                let held = add(0, units)?;
                place.insert(Slot {
                    name: name.clone(),
                    held,
                });
                held
            }
        };
        *token += 1;
        Ok(Taken {
            token: *token,
            held,
        })
    }

    /// Gives `weight` units back.
    pub(super) fn give_back(&self, name: &Name, weight: u32) {
        let Table { slots, .. } = &mut *self.lock();
        if let Entry::Occupied(slot) = entry(slots, name) {
            leave(slot, weight);
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.lock().slots.len()
    }

    /// No code that holds the lock can panic halfway, so a poisoned lock guards a sound table.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry<'a>(slots: &'a mut HashTable<Slot>, name: &Name) -> Entry<'a, Slot> {
    slots.entry(name.hash, |slot| slot.name == *name, |slot| slot.name.hash)
}

fn add(held: u32, units: Units) -> Result<u32, AcquireError> {
    let limit = units.limit;
    match held.checked_add(units.weight) {
        Some(sum) if sum <= limit => Ok(sum),
        _ => Err(AcquireError::Full { limit, held }),
    }
}

fn leave(mut slot: OccupiedEntry<'_, Slot>, weight: u32) {
    let held = &mut slot.get_mut().held;
    *held -= weight;
    if *held == 0 {
        slot.remove();
    }
}
