//! The units that a permit holds of one key.

use crate::{
    observe::{self, BudgetUse, Store},
    semaphore::{Policy, Settled, TakenUnits},
    sync::{AtomicU32, AtomicU64},
};
use std::sync::atomic::Ordering::Relaxed;

/// The units of a key that a permit holds. Changed only under the shard's lock, so relaxed ordering is enough, and no
/// swap has to be atomic.
pub(super) struct HeldUnits {
    /// 0 after the release. Of a budget, the units that were reserved at the grant.
    weight: AtomicU32,
    /// See [`Settled`]. A total is stored as itself.
    settled: AtomicU64,
}

/// Units of a budget for the metrics. They are recorded once no lock is held, because a recorder is user code. Boxed,
/// because most permits have none.
#[must_use]
pub(super) struct CountedUnits {
    pub(super) policy: Policy,
    pub(super) used: BudgetUse,
    pub(super) units: u32,
}

impl CountedUnits {
    pub(super) fn record(self) {
        observe::budget(Store::Memory, self.policy.as_str(), self.used, self.units);
    }
}

impl HeldUnits {
    const UNCHARGED: u64 = u64::MAX;
    const ESTIMATE: u64 = u64::MAX - 1;

    /// Units that were granted.
    pub(super) fn new(weight: u32) -> Self {
        Self {
            weight: AtomicU32::new(weight),
            settled: AtomicU64::new(Self::UNCHARGED),
        }
    }

    #[inline]
    pub(super) fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    pub(super) fn set_weight(&self, weight: u32) {
        self.weight.store(weight, Relaxed);
    }

    #[inline]
    pub(super) fn settled(&self) -> Settled {
        match self.settled.load(Relaxed) {
            Self::UNCHARGED => Settled::Uncharged,
            Self::ESTIMATE => Settled::Estimate,
            total => Settled::Total(total as u32),
        }
    }

    pub(super) fn set_settled(&self, settled: Settled) {
        let settled = match settled {
            Settled::Uncharged => Self::UNCHARGED,
            Settled::Estimate => Self::ESTIMATE,
            Settled::Total(total) => total.into(),
        };
        self.settled.store(settled, Relaxed);
    }

    /// Takes the units of a permit, which then has none.
    #[inline]
    pub(super) fn take(&self) -> TakenUnits {
        let (weight, settled) = (self.weight(), self.settled());
        self.set_weight(0);
        TakenUnits { weight, settled }
    }
}
