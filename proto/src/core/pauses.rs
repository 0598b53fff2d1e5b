//! The pauses that this process has set, for claims that are decided without a server.

use super::time::Time;
use std::{collections::HashMap, sync::Arc};

/// Of fewer pauses none is removed.
const FEW: usize = 64;

/// The pauses by the names of their semaphores.
#[derive(Debug, Default)]
pub(super) struct LocalPauses {
    all: HashMap<Arc<str>, LocalPause>,
    /// The number of pauses from which on those that are over are removed.
    most: usize,
}

#[derive(Debug, Default)]
struct LocalPause {
    noted: Time,
    end: Time,
}

impl LocalPauses {
    /// Records a pause, unless a longer one is recorded. Removes pauses that are over now and then, because each is looked
    /// at.
    pub(super) fn extend(&mut self, now: Time, name: Arc<str>, until: Time) {
        if self.all.len() >= self.most {
            self.all.retain(|_, pause| pause.end > now);
            self.most = FEW.max(2 * self.all.len());
        }
        let pause = self.all.entry(name).or_default();
        (pause.noted, pause.end) = (now, until.max(pause.end));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.all.remove(name);
    }

    /// Removes a pause that was noted before this time. A server has granted units since, so the pause has ended: another
    /// process has resumed the key, or the server has lost its data.
    pub(super) fn remove_before(&mut self, name: &str, time: Time) {
        if self.all.get(name).is_some_and(|pause| pause.noted < time) {
            self.all.remove(name);
        }
    }

    /// The end of the semaphore's pause, if it is paused now.
    pub(super) fn end_of(&self, name: &str, now: Time) -> Option<Time> {
        let end = self.all.get(name).map(|pause| pause.end);
        end.filter(|end| *end > now)
    }
}
