//! The keys that share one lock.

use super::Name;
use crate::semaphore::{AcquireError, Units};
use hashbrown::hash_table::{Entry, HashTable, OccupiedEntry};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// One lock and its keys.
#[derive(Default)]
pub(super) struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    slots: HashTable<Slot>,
    /// The last number given: to a permit as its token, to a waiter as its place. It outlives the
    /// keys, so that tokens grow although keys vanish.
    last: u64,
}

/// What is held of one key, and who waits for it. It exists only while that is somebody.
///
/// A count is as good as a set here: a permit of this process cannot be lost without its drop.
struct Slot {
    name: Name,
    held: u32,
    line: VecDeque<Waiter>,
}

struct Waiter {
    place: u64,
    units: Units,
    told: oneshot::Sender<Taken>,
}

/// What was taken: the permit's token, and how much of its key is held now.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) token: u64,
    pub(super) held: u32,
}

/// A place in a line.
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) told: oneshot::Receiver<Taken>,
}

impl Shard {
    /// Takes `units` of a key if there is room and nobody waits for it.
    pub(super) fn take(&self, name: &Name, units: Units) -> Result<Taken, AcquireError> {
        let Table { slots, last } = &mut *self.lock();
        let held = match entry(slots, name) {
            Entry::Occupied(mut slot) => slot.get_mut().add(units)?,
            Entry::Vacant(place) => {
                place.insert(Slot {
                    name: name.clone(),
                    held: units.weight,
                    line: VecDeque::new(),
                });
                units.weight
            }
        };
        Ok(Taken {
            token: next(last),
            held,
        })
    }

    /// Joins the line of a key that has no room, unless `longest` wait already. With room after
    /// all, the place is told so at once.
    pub(super) fn join(
        &self,
        name: &Name,
        units: Units,
        longest: u32,
    ) -> Result<Place, AcquireError> {
        let Table { slots, last } = &mut *self.lock();
        let vacant = || Slot {
            name: name.clone(),
            held: 0,
            line: VecDeque::new(),
        };
        let mut slot = entry(slots, name).or_insert_with(vacant);
        if slot.get().line.len() >= longest as usize {
            settle(slot, last);
            return Err(AcquireError::LineFull);
        }
        let (told, receiver) = oneshot::channel();
        let place = next(last);
        slot.get_mut().line.push_back(Waiter { place, units, told });
        slot.get_mut().advance(last);
        Ok(Place {
            number: place,
            told: receiver,
        })
    }

    /// Gives `weight` units back.
    pub(super) fn give_back(&self, name: &Name, weight: u32) {
        let Table { slots, last } = &mut *self.lock();
        if let Entry::Occupied(mut slot) = entry(slots, name) {
            slot.get_mut().held -= weight;
            settle(slot, last);
        }
    }

    /// Leaves the line; or gives back what was granted meanwhile and not taken up.
    pub(super) fn leave(&self, name: &Name, number: u64, weight: u32) {
        let Table { slots, last } = &mut *self.lock();
        if let Entry::Occupied(mut slot) = entry(slots, name) {
            let Slot { line, held, .. } = slot.get_mut();
            match line.iter().position(|waiter| waiter.place == number) {
                Some(index) => drop(line.remove(index)),
                None => *held -= weight,
            }
            settle(slot, last);
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

impl Slot {
    fn add(&mut self, units: Units) -> Result<u32, AcquireError> {
        if !self.line.is_empty() || !self.fits(units) {
            let (limit, held) = (units.limit, self.held);
            return Err(AcquireError::Full { limit, held });
        }
        self.held += units.weight;
        Ok(self.held)
    }

    fn fits(&self, units: Units) -> bool {
        // Both are limits at most, and their sum may be too much for 32 bits.
        u64::from(self.held) + u64::from(units.weight) <= u64::from(units.limit)
    }

    fn next_that_fits(&mut self) -> Option<Waiter> {
        let fits = self.fits(self.line.front()?.units);
        fits.then(|| self.line.pop_front())?
    }

    /// Grants to the head of the line while it fits, each under its own limit. Nobody behind the
    /// head is looked at, so no lighter claim starves a heavy one.
    fn advance(&mut self, last: &mut u64) {
        while let Some(waiter) = self.next_that_fits() {
            self.held += waiter.units.weight;
            let taken = Taken {
                token: next(last),
                held: self.held,
            };
            // Who does not listen any more is about to leave, and gives it back then.
            let _ = waiter.told.send(taken);
        }
    }
}

/// Lets the next in, and forgets a key that is idle.
fn settle(mut slot: OccupiedEntry<'_, Slot>, last: &mut u64) {
    slot.get_mut().advance(last);
    if slot.get().held == 0 && slot.get().line.is_empty() {
        slot.remove();
    }
}

fn next(last: &mut u64) -> u64 {
    *last += 1;
    *last
}

fn entry<'a>(slots: &'a mut HashTable<Slot>, name: &Name) -> Entry<'a, Slot> {
    slots.entry(name.hash, |slot| slot.name == *name, |slot| slot.name.hash)
}
