//! The pauses that this process has set, for claims that are decided without a server.

use super::time::Time;
use std::{collections::HashMap, sync::Arc};

/// The ends of pauses, by the names of their semaphores.
#[derive(Debug, Default)]
pub(super) struct LocalPauses(HashMap<Arc<str>, Time>);

impl LocalPauses {
    /// Records a pause, unless a longer one is recorded. Removes pauses that are over.
    pub(super) fn extend(&mut self, now: Time, name: Arc<str>, until: Time) {
        self.0.retain(|_, end| *end > now);
        let end = self.0.entry(name).or_default();
        *end = until.max(*end);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The end of the semaphore's pause, if it is paused now.
    pub(super) fn end_of(&self, name: &str, now: Time) -> Option<Time> {
        self.0.get(name).copied().filter(|end| *end > now)
    }
}
