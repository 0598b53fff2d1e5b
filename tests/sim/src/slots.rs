//! Slots that move from one server to another, as in a cluster. Once the move begins, the old server redirects requests
//! for keys that it no longer has to the new one. Only at the end does the new one own the slot.

use crate::subject::{Key, Server, SlotNo};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long after the end of a slot's move a process may still not know of it. The new map arrives within 300 ms.
pub const KNOWN: Duration = Duration::from_millis(400);

/// The location of the keys of a slot that has moved or is moving.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The server that owns the slot.
    pub owner: Server,
    /// The server to which the slot is moving.
    pub moves_to: Option<Server>,
    /// The server that has its keys.
    pub home: Server,
    /// True while some of its keys have moved and others have not.
    pub is_split: bool,
    /// When all processes know of the move: `Duration::MAX` while the slot is moving.
    known: Duration,
}

/// All slots. Clones share them: the schedule, the settings of each process, and the judge have one.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    places: Shared<SlotNo, Place>,
    /// When another program's value in a key of a semaphore is, or was, deleted.
    poisons: Shared<Key, Duration>,
    /// When a slot without a server is served again.
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

    /// Forgets all moves, foreign values and gaps.
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

    /// Another program overwrites a key of a semaphore, until `until`.
    pub fn poison(&self, key: Key, until: Duration) {
        let mut poisons = self.poisons();
        let old = poisons.entry(key).or_default();
        *old = until.max(*old);
    }

    /// When another program's value in a key of a semaphore is deleted, if the key ever had such a value.
    pub fn poisoned(&self, key: Key) -> Option<Duration> {
        self.poisons().get(&key).copied()
    }

    /// The location of the keys of a slot, if it has moved or is moving.
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

    /// The new server owns the slot.
    pub fn end(&self, slot: SlotNo, now: Duration) {
        if let Some(place) = self.places().get_mut(&slot) {
            (place.owner, place.moves_to, place.known) = (place.home, None, now + KNOWN);
        }
    }

    /// True if some process may not know where some semaphore is.
    pub fn is_unknown(&self, now: Duration) -> bool {
        let places = self.places();
        // Higher slots are those of the store's own keys.
        let mut semaphores = places.range(..=SlotNo::from(Key::MAX));
        semaphores.any(|(_, place)| now < place.known)
    }

    /// When all processes know where a slot is.
    pub fn known(&self, slot: impl Into<SlotNo>) -> Duration {
        self.place(slot).map_or(Duration::ZERO, |place| place.known)
    }
}
