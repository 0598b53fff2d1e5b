//! Maps by the names of semaphores, whose entries become useless after a time.

use std::{collections::HashMap, sync::Arc};

/// Useless entries are removed only once the map has this many entries.
pub(super) const FEW: usize = 64;

/// A map that rarely removes its useless entries, because each removal visits all entries.
#[derive(Debug, Default)]
pub(super) struct SweptMap<V> {
    all: HashMap<Arc<str>, V>,
    /// The number of entries at which the next removal is due.
    sweep_at: usize,
}

impl<V: Default> SweptMap<V> {
    pub(super) fn get(&self, name: &str) -> Option<&V> {
        self.all.get(name)
    }

    /// The entry of a name, which is added if it is new. Sometimes removes all entries that `is_kept` does not select.
    pub(super) fn entry(&mut self, name: Arc<str>, is_kept: impl Fn(&V) -> bool) -> &mut V {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|_, value| is_kept(value));
            self.sweep_at = FEW.max(2 * self.all.len());
        }
        self.all.entry(name).or_default()
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.all.remove(name);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
