//! How permits, and the claims that got them, are counted.

use super::{AcquireError, Grant, Key, Permit, Policy, Units};
use crate::observe::{Claiming, Held, Outcome, Store, events::Asked, refused};

/// A claim whose answer is to come. Dropped before, it is cancelled.
pub(super) struct Counted {
    claiming: Claiming,
    asked: Asked,
}

impl Counted {
    pub(super) fn begin(store: Store, policy: &Policy, key: &Key) -> Self {
        Self {
            claiming: Claiming::begin(store, policy.as_str()),
            asked: Asked::of(store, policy.as_str(), key.as_bytes()),
        }
    }

    pub(super) fn answered(&mut self, answer: &Result<Permit, AcquireError>) {
        match answer {
            Ok(permit) => {
                self.claiming.granted();
                permit.claimed();
            }
            Err(error) => {
                let (by, outcome) = (error.policy().map(Policy::as_str), error.outcome());
                self.claiming.refused(by, outcome);
                self.asked.refused(by, outcome, error);
            }
        }
    }
}

/// A claim is answered at once.
#[inline]
pub(super) fn answered(
    answer: &Result<Permit, AcquireError>,
    store: Store,
    policy: &Policy,
    key: &Key,
) {
    match answer {
        Ok(permit) => permit.claimed(),
        Err(error) => {
            let (by, outcome) = (error.policy().unwrap_or(policy), error.outcome());
            refused(store, by, outcome);
            let asked = Asked::of(store, by.as_str(), key.as_bytes());
            asked.refused(None, outcome, error);
        }
    }
}

impl Permit {
    /// A permit for what a store has granted, which is counted from now on.
    #[inline]
    pub(crate) fn granted(
        grant: impl Grant,
        store: Store,
        policy: Policy,
        units: Units,
        held: u32,
    ) -> Self {
        let counted = match grant.parts() {
            [] => Held::begun(store, policy.as_str()),
            _ => Held::default(),
        };
        let remaining = units.limit.saturating_sub(held);
        Self::from_parts(grant, policy, units, remaining, counted)
    }

    /// The same, but it is counted from [`count`](Self::count) on: that calls the recorder, which is code of the
    /// user's, so it is no call for a thread that has a lock.
    #[inline]
    pub(crate) fn uncounted(
        grant: impl Grant,
        store: Store,
        policy: Policy,
        units: Units,
        held: u32,
    ) -> Self {
        let remaining = units.limit.saturating_sub(held);
        // A permit that combines others counts as these.
        let counted = match grant.parts() {
            [] => Held::of(store),
            _ => Held::default(),
        };
        Self::from_parts(grant, policy, units, remaining, counted)
    }

    /// The permit is counted from now on.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.held.begin(self.0.policy.as_str());
    }

    /// The claim of each limit is counted.
    #[inline]
    pub(super) fn claimed(&self) {
        match self.0.held.store() {
            Some(_) => self.0.held.claimed(|| self.outcome()),
            None => self.parts().iter().for_each(Self::claimed),
        }
    }

    /// How an admission with this permit is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.is_degraded() {
            true => Outcome::Degraded,
            false => Outcome::Admitted,
        }
    }
}
