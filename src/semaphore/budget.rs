//! Budgets: limits of units per window of time. Units of a budget come back with time, not with a release.

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
