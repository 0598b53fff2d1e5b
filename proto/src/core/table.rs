//! A table of permits or debts, which finds an entry by its id.

use slab::Slab;
use std::{
    fmt::Debug,
    ops::{Index, IndexMut},
};

/// The id of an entry: its place in the table, which other entries use later, and a number that is never used again. So
/// the id of a removed entry finds nothing.
pub(super) trait EntryId: Debug + Copy + PartialEq {
    fn new(index: usize, serial: u64) -> Self;

    fn index(self) -> usize;
}

/// An entry, which contains its id.
pub(super) trait TableEntry {
    type Id: EntryId;

    fn id(&self) -> Self::Id;
}

#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Slab<T>,
    last_serial: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            last_serial: 0,
        }
    }
}

impl<T: TableEntry> Table<T> {
    /// The id of the entry that is inserted next.
    pub(super) fn next_id(&mut self) -> T::Id {
        self.last_serial += 1;
        T::Id::new(self.entries.vacant_key(), self.last_serial)
    }

    /// Inserts an entry with the last [`next_id`](Self::next_id).
    pub(super) fn insert(&mut self, entry: T) {
        let id = entry.id();
        let index = self.entries.insert(entry);
        debug_assert_eq!(id.index(), index, "another entry has this place");
    }

    pub(super) fn get(&self, id: T::Id) -> Option<&T> {
        let entry = self.entries.get(id.index());
        entry.filter(|entry| entry.id() == id)
    }

    pub(super) fn get_mut(&mut self, id: T::Id) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.index());
        entry.filter(|entry| entry.id() == id)
    }

    /// Removes an entry, which must be there.
    pub(super) fn remove(&mut self, id: T::Id) -> T {
        debug_assert!(self.get(id).is_some(), "another entry has this place");
        self.entries.remove(id.index())
    }

    /// The id of the entry at a place, or `None` if the place is free.
    pub(super) fn id_at(&self, index: usize) -> Option<T::Id> {
        self.entries.get(index).map(T::id)
    }

    /// The number of places: every id of an entry has a lower index.
    pub(super) fn places(&self) -> usize {
        self.entries.capacity()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }
}

/// Panics if the entry was removed. An id that may outlive its entry, as in a flight or a queue, is looked up with
/// [`Table::get`].
impl<T: TableEntry> Index<T::Id> for Table<T> {
    type Output = T;

    fn index(&self, id: T::Id) -> &T {
        let entry = &self.entries[id.index()];
        debug_assert_eq!(entry.id(), id, "another entry has this place");
        entry
    }
}

impl<T: TableEntry> IndexMut<T::Id> for Table<T> {
    fn index_mut(&mut self, id: T::Id) -> &mut T {
        let entry = &mut self.entries[id.index()];
        debug_assert_eq!(entry.id(), id, "another entry has this place");
        entry
    }
}
