//! The pauses that this process has set, for claims that are decided without a server.

use super::time::Time;
use std::{collections::HashMap, sync::Arc};

/// Of fewer pauses none is removed.
const FEW: usize = 64;

/// The ends of pauses, by the names of their semaphores.
#[derive(Debug, Default)]
pub(super) struct LocalPauses {
    ends: HashMap<Arc<str>, Time>,
    /// The number of pauses from which on those that are over are removed.
    most: usize,
}

impl LocalPauses {
    /// Records a pause, unless a longer one is recorded. Removes pauses that are over now and then, because each is looked
    /// at.
    pub(super) fn extend(&mut self, now: Time, name: Arc<str>, until: Time) {
        if self.ends.len() >= self.most {
            self.ends.retain(|_, end| *end > now);
            self.most = FEW.max(2 * self.ends.len());
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
