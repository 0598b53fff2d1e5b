//! How long permits are held.

use super::ages::Ages;
use std::time::Duration;

/// A longer hold counts as one of this length, in seconds: a stream of hours tells nobody to come
/// back in hours.
pub(super) const MAX_HOLD: f64 = 60.0;

/// What counts as the mean while nothing was seen, in seconds.
const UNSEEN: f64 = 0.5;

/// The weight of a new hold in the mean is one part in so many, once so many were seen.
const MEMORY: u32 = 64;

/// A mean of the last holds, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    mean: f64,
    seen: u32,
}

impl Mean {
    pub(super) fn add(&mut self, hold: f64) {
        self.seen = (self.seen + 1).min(MEMORY);
        self.mean += (hold.min(MAX_HOLD) - self.mean) / f64::from(self.seen);
    }

    pub(super) fn get(self) -> f64 {
        if self.seen == 0 { UNSEEN } else { self.mean }
    }

    /// The mean, where a hold is at least as long as these permits are held already.
    pub(super) fn beside(self, held: Ages, now: Duration) -> f64 {
        let age = match self.seen {
            0 => held.mean(now),
            _ => held.least(now),
        };
        self.get().max(age.as_secs_f64().min(MAX_HOLD))
    }
}
