//! Slots that move from one server to another, as a cluster moves them: from when it begins the old server asks for
//! keys that it has no longer at the new one, and only at the end the new one has the slot.

use crate::subject::{Key, Server, SlotNo};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long after a slot has moved some process may not know that yet.
pub const KNOWN: Duration = Duration::from_millis(400);

/// Where the keys of a slot are that has moved or is moving.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The server that has its slot.
    pub owner: Server,
    /// Where the slot is moving.
    pub moves_to: Option<Server>,
    /// The server that has its keys.
    pub home: Server,
    /// Whether some of them are on their way.
    pub is_split: bool,
    /// When all processes know, if it is not moving.
    known: Duration,
}

/// All slots. Shared by all that know a schedule.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    places: Shared<SlotNo, Place>,
    /// Until when another program has written over a key of a semaphore.
    poisons: Shared<Key, Duration>,
    /// Until when no server serves a slot.
    gaps: Shared<SlotNo, Duration>,
}

type Shared<K, V> = Arc<Mutex<BTreeMap<K, V>>>;

fn locked<K, V>(map: &Shared<K, V>) -> MutexGuard<'_, BTreeMap<K, V>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slots {
    fn places(&self) -> MutexGuard<'_, BTreeMap<SlotNo, Place>> {
        locked(&self.places)
    }

    /// Nothing has moved.
    pub fn reset(&self) {
        self.places().clear();
        self.poisons().clear();
        locked(&self.gaps).clear();
    }

    fn poisons(&self) -> MutexGuard<'_, BTreeMap<Key, Duration>> {
        locked(&self.poisons)
    }

    /// No server serves a slot until this time.
    pub fn leave_unserved(&self, slot: SlotNo, until: Duration) {
        let mut gaps = locked(&self.gaps);
        let old = gaps.entry(slot).or_default();
        *old = until.max(*old);
    }

    /// True if no server serves a slot at this time.
    pub fn is_unserved(&self, slot: SlotNo, now: Duration) -> bool {
        locked(&self.gaps)
            .get(&slot)
            .is_some_and(|until| now < *until)
    }

    /// Another program has written over a key of a semaphore.
    pub fn poison(&self, key: Key, until: Duration) {
        let mut poisons = self.poisons();
        let old = poisons.entry(key).or_default();
        *old = until.max(*old);
    }

    /// Until when another program's value was there, if it ever was.
    pub fn poisoned(&self, key: Key) -> Option<Duration> {
        self.poisons().get(&key).copied()
    }

    /// Where the keys of a slot are, if it has moved or is moving.
    pub fn place(&self, slot: impl Into<SlotNo>) -> Option<Place> {
        self.places().get(&slot.into()).copied()
    }

    /// A slot begins to move.
    pub fn begin(&self, slot: SlotNo, (owner, to): (Server, Server)) {
        let place = Place {
            owner,
            moves_to: Some(to),
            home: owner,
            is_split: false,
            known: Duration::MAX,
        };
        self.places().insert(slot, place);
    }

    /// The first keys of a slot are at the new server.
    pub fn split(&self, slot: SlotNo) {
        if let Some(place) = self.places().get_mut(&slot) {
            place.is_split = place.home == place.owner;
        }
    }

    /// The keys of a slot are at the new server.
    pub fn migrate(&self, slot: SlotNo) {
        if let Some(place) = self.places().get_mut(&slot) {
            (place.home, place.is_split) = (place.moves_to.unwrap_or(place.home), false);
        }
    }

    /// The new server has the slot.
    pub fn end(&self, slot: SlotNo, now: Duration) {
        if let Some(place) = self.places().get_mut(&slot) {
            (place.owner, place.moves_to, place.known) = (place.home, None, now + KNOWN);
        }
    }

    /// Whether some process may not know where each semaphore is.
    pub fn is_unknown(&self, now: Duration) -> bool {
        let places = self.places();
        let mut semaphores = places.range(..=SlotNo::from(Key::MAX));
        semaphores.any(|(_, place)| now < place.known)
    }

    /// When all knew where a slot is.
    pub fn known(&self, slot: impl Into<SlotNo>) -> Duration {
        self.place(slot).map_or(Duration::ZERO, |place| place.known)
    }
}
