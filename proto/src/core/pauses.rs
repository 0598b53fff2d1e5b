//! The pauses that this process has set, for claims that are decided without a server.

use super::time::Time;
use std::{collections::HashMap, sync::Arc};

/// Ended pauses are removed only once the map has this many entries.
const FEW: usize = 64;

/// The ends of the pauses that this process has set, by the names of their semaphores.
#[derive(Debug, Default)]
pub(super) struct LocalPauses {
    ends: HashMap<Arc<str>, Time>,
    /// The number of pauses that triggers the next cleanup.
    cleanup_at: usize,
}

impl LocalPauses {
    /// Records a pause, unless a longer one is recorded. Sometimes removes ended pauses. A cleanup visits all of them, so it
    /// is rare.
    pub(super) fn extend(&mut self, now: Time, name: Arc<str>, until: Time) {
        if self.ends.len() >= self.cleanup_at {
            self.ends.retain(|_, end| *end > now);
            self.cleanup_at = FEW.max(2 * self.ends.len());
        }
        let end = self.ends.entry(name).or_default();
        *end = until.max(*end);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.ends.remove(name);
    }

    /// The end of the semaphore's pause, if it is paused now.
    pub(super) fn end_of(&self, name: &str, now: Time) -> Option<Time> {
        self.ends.get(name).copied().filter(|end| *end > now)
    }
}
