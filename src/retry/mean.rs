//! The mean hold of permits.

use super::ages::Ages;
use std::time::Duration;

/// Longer holds count as this many seconds, so that a stream of hours does not send clients away
/// for hours.
pub(super) const MAX_HOLD: f64 = 60.0;

/// The mean in seconds before the first hold.
const UNSEEN: f64 = 0.5;

/// A new hold has a weight of 1 / `MEMORY` in the mean, once this many were seen.
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

    /// The mean, but at least the age of the permits that are held now.
    pub(super) fn beside(self, held: Ages, now: Duration) -> f64 {
        let age = match self.seen {
            0 => held.mean(now),
            _ => held.least(now),
        };
        self.get().max(age.as_secs_f64().min(MAX_HOLD))
    }
}
