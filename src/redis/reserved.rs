//! The metrics of a permit's units of a budget: reserved, spent, freed or lost, as far as this process knows.

use crate::{
    observe::{self, BudgetUse, Store::Redis as REDIS},
    semaphore::{Charge, PermitEnd, Policy, Settled, TakenUnits},
    sync::Mutex,
};

/// The units of one level whose limit is a budget.
pub(super) struct ReservedUnits {
    policy: Policy,
    weight: u32,
    /// The units settled so far. `None` once the permit has ended.
    state: Mutex<Option<Settled>>,
}

impl ReservedUnits {
    /// Counts units that were granted. Those of a rate are spent at the grant. Those of an estimate are reserved until
    /// they are settled.
    pub(super) fn granted(policy: &Policy, weight: u32, charge: Charge) -> Self {
        let (kind, settled) = match charge {
            Charge::Grant => (BudgetUse::Spent, Settled::Total(weight)),
            Charge::Settlement => (BudgetUse::Reserved, Settled::Estimate),
        };
        let units = Self {
            policy: policy.clone(),
            weight,
            state: Mutex::new(Some(settled)),
        };
        units.count(kind, weight);
        units
    }

    /// Counts the units that the permit has used since the last call. `used` is the total. Returns false if the permit
    /// has ended.
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
        let before = (*state)?.total().unwrap_or(0);
        *state = Some(Settled::Total(used.max(before)));
        Some(before)
    }

    /// Counts the units that are not settled as spent, freed or lost, by how the permit has ended. A second call does
    /// nothing.
    pub(super) fn end(&self, end: PermitEnd) {
        let settled = self.state.lock().take();
        if let Some(settled) = settled {
            let weight = self.weight;
            let rest = TakenUnits { weight, settled };
            self.count(rest.use_of_unsettled(end), rest.unsettled());
        }
    }

    // A recorder is user code, so this is called without the lock.
    fn count(&self, kind: BudgetUse, units: u32) {
        observe::budget(REDIS, self.policy.as_str(), kind, units);
    }
}
