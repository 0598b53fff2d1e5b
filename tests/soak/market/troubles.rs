//! What was done to the fleet and when, so that its consequences are not taken for defects.

use super::plan::now;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who has trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    All,
    /// The process at this position of the fleet.
    Process(usize),
}

#[derive(Debug)]
struct Trouble {
    whom: Whom,
    from: i64,
    to: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<Vec<Trouble>>);

impl Troubles {
    /// Begins one, which lasts until its number is passed to [`end`](Self::end).
    pub(crate) fn begin(&self, whom: Whom) -> usize {
        let mut troubles = self.lock();
        troubles.push(Trouble {
            whom,
            from: now(),
            to: i64::MAX,
        });
        troubles.len() - 1
    }

    pub(crate) fn end(&self, number: usize) {
        self.lock()[number].to = now();
    }

    /// Notes one that is over.
    pub(crate) fn note(&self, whom: Whom, from: i64) {
        let to = now();
        self.lock().push(Trouble { whom, from, to });
    }

    /// Whether a process had trouble at any time from then on until then; any process for `All`.
    pub(crate) fn had(&self, whom: Whom, from: i64, to: i64) -> bool {
        let concerns = |trouble: &Trouble| {
            trouble.whom == Whom::All || whom == Whom::All || trouble.whom == whom
        };
        let troubles = self.lock();
        let mut during = troubles.iter().rev().filter(|trouble| concerns(trouble));
        during.any(|trouble| trouble.from <= to && trouble.to >= from)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Trouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
