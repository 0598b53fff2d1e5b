//! The metrics of a permit's units of a budget: reserved, spent, freed or lost, as far as this process knows.

use crate::{
    observe::{self, BudgetUse, Store::Redis as REDIS},
    semaphore::{Charge, Policy},
    sync::Mutex,
};

/// The units of one level.
pub(super) struct ReservedUnits {
    policy: Policy,
    weight: u32,
    /// `None` once the permit has ended.
    state: Mutex<Option<Settled>>,
}

#[derive(Clone, Copy)]
enum Settled {
    /// At the end the whole estimate counts as used.
    Estimate,
    Total(u32),
}

impl ReservedUnits {
    /// Counts units that were granted.
    pub(super) fn granted(policy: &Policy, weight: u32, charge: Charge) -> Self {
        let (used, settled) = match charge {
            Charge::Grant => (BudgetUse::Spent, Settled::Total(weight)),
            Charge::Settlement => (BudgetUse::Reserved, Settled::Estimate),
        };
        let units = Self {
            policy: policy.clone(),
            weight,
            state: Mutex::new(Some(settled)),
        };
        units.count(used, weight);
        units
    }

    /// Counts the growth of the total that the permit has used. Returns false if the permit has ended.
    pub(super) fn settle(&self, used: u32) -> bool {
        let before = self.raise_total(used);
        if let Some(before) = before {
            self.count(BudgetUse::Spent, used.saturating_sub(before));
        }
        before.is_some()
    }

    /// Stores a total, which never shrinks. Returns the total before, or `None` if the permit has ended.
    fn raise_total(&self, used: u32) -> Option<u32> {
        let mut state = self.state.lock();
        let before = match (*state)? {
            Settled::Estimate => 0,
            Settled::Total(total) => total,
        };
        *state = Some(Settled::Total(used.max(before)));
        Some(before)
    }

    /// Counts the rest of the units of a permit that was held to its end, once.
    pub(super) fn end(&self) {
        if let Some((used, rest)) = self.take_rest() {
            self.count(used, rest);
        }
    }

    /// Counts the rest of the units of a permit that was lost, once.
    pub(super) fn lose(&self) {
        if let Some((_, rest)) = self.take_rest() {
            self.count(BudgetUse::Lost, rest);
        }
    }

    /// Ends the permit. Returns the use of its rest, and the rest; `None` if it has ended before.
    fn take_rest(&self) -> Option<(BudgetUse, u32)> {
        Some(match self.state.lock().take()? {
            Settled::Estimate => (BudgetUse::Spent, self.weight),
            Settled::Total(total) => (BudgetUse::Freed, self.weight.saturating_sub(total)),
        })
    }

    // A recorder is user code, so no lock is held.
    fn count(&self, used: BudgetUse, units: u32) {
        observe::budget(REDIS, self.policy.as_str(), used, units);
    }
}
