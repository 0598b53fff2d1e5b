//! The pauses that this process has set, for claims that are decided without a server.

use super::{Core, id::PermitId, permit::Refusal, time::Time};
use std::{collections::HashMap, sync::Arc};

/// The ends of pauses, by the names of their semaphores.
#[derive(Debug, Default)]
pub(super) struct Pauses(HashMap<Arc<str>, Time>);

impl Pauses {
    /// Notes a pause until this time, unless a longer one is noted. Forgets those that are over.
    fn set(&mut self, now: Time, name: Arc<str>, until: Time) {
        self.0.retain(|_, end| *end > now);
        let end = self.0.entry(name).or_default();
        *end = until.max(*end);
    }

    fn end_of(&self, name: &str, now: Time) -> Option<Time> {
        self.0.get(name).copied().filter(|end| *end > now)
    }
}

impl Core {
    /// Notes that this process pauses a semaphore until this time, or ends its pause.
    pub(in crate::redis) fn note_pause(&mut self, now: Time, name: Arc<str>, until: Option<Time>) {
        self.now = now;
        match until {
            Some(until) => self.pauses.set(now, name, until),
            None => drop(self.pauses.0.remove(&name)),
        }
    }

    /// The refusal of a claim that no server can decide, if this process has paused one of its semaphores.
    pub(super) fn paused(&self, id: PermitId) -> Option<Refusal> {
        let levels = self.permits[id].levels.iter().enumerate();
        let mut paused = levels.filter_map(|(number, level)| {
            let end = self.pauses.end_of(&self.keys[level.key].name, self.now)?;
            Some(Refusal::Paused(
                number,
                level.units.id.limit,
                end - self.now,
            ))
        });
        paused.next()
    }
}
