//! Budgets: limits of units per window of time. Units of a budget come back with time, not with a release.

use crate::observe::BudgetUse;
use std::{num::NonZeroU32, time::Duration};

/// The longest [window](super::Claim::with_window) of a budget: 31 days.
pub const MAX_WINDOW: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// The window of a budget, in whole milliseconds, at most [`MAX_WINDOW`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Window(NonZeroU32);

impl Window {
    /// Drops the part below a millisecond. `None` if nothing is left, or if the time is too long.
    pub(crate) fn new(time: Duration) -> Option<Self> {
        let millis = u32::try_from(time.as_millis()).ok()?;
        NonZeroU32::new(millis)
            .filter(|_| time <= MAX_WINDOW)
            .map(Self)
    }

    pub(crate) fn time(self) -> Duration {
        Duration::from_millis(self.0.get().into())
    }
}

/// The budget that a claim takes units of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) window: Window,
    pub(crate) charge: Charge,
}

/// When the units of a claim count as used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Charge {
    /// All of them when they are granted: a rate.
    Grant,
    /// As the holder settles them. Until then they are reserved, and time does not return them.
    Settlement,
}

/// How many of its units of a budget a permit has used.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Settled {
    /// No units: the request has no permit yet.
    #[default]
    Uncharged,
    /// Not known: at the end its whole estimate counts as used.
    Estimate,
    Total(u32),
}

/// How the units of a permit end.
#[derive(Clone, Copy)]
pub(crate) enum PermitEnd {
    Released,
    /// A lease has ended, or an operator has revoked the permit. The holder may have used what it has not settled.
    Lost,
}

/// The units that a permit held until now.
#[derive(Clone, Copy, Default)]
pub(crate) struct TakenUnits {
    pub(crate) weight: u32,
    pub(crate) settled: Settled,
}

impl Settled {
    pub(crate) fn total(self) -> Option<u32> {
        match self {
            Self::Total(total) => Some(total),
            Self::Uncharged | Self::Estimate => None,
        }
    }
}

impl TakenUnits {
    /// The units of a budget that the permit had reserved and not settled.
    pub(crate) fn unsettled(self) -> u32 {
        self.weight
            .saturating_sub(self.settled.total().unwrap_or(0))
    }

    /// How the unsettled units count after the end of the permit.
    pub(crate) fn use_of_unsettled(self, end: PermitEnd) -> BudgetUse {
        match (end, self.settled) {
            (PermitEnd::Lost, _) => BudgetUse::Lost,
            (PermitEnd::Released, Settled::Estimate) => BudgetUse::Spent,
            (PermitEnd::Released, Settled::Uncharged | Settled::Total(_)) => BudgetUse::Freed,
        }
    }
}
