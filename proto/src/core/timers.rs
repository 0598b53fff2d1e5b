//! The timers of permits and debts: at most one for each (rule 10).

use super::{
    id::{DebtId, PermitId},
    time::Time,
};
use std::collections::BTreeSet;

/// The owner of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerOwner {
    Permit(PermitId),
    Debt(DebtId),
}

#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Time, TimerOwner)>);

impl Timers {
    /// Moves a timer to `next`, unless it is set to an earlier time. `set_to` is the owner's record of its timer.
    pub(super) fn set(&mut self, owner: TimerOwner, set_to: &mut Option<Time>, next: Time) {
        if set_to.is_none_or(|old| next < old) {
            self.clear(owner, set_to);
            self.0.insert((next, owner));
            *set_to = Some(next);
        }
    }

    pub(super) fn clear(&mut self, owner: TimerOwner, set_to: &mut Option<Time>) {
        if let Some(old) = set_to.take() {
            self.0.remove(&(old, owner));
        }
    }

    pub(super) fn first(&self) -> Option<(Time, TimerOwner)> {
        self.0.first().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
impl Timers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
