//! A time in which this process's clock stood still, or may have.

use super::pulse::Gap;
use crate::redis::{clock::Times, lease::Lease};
use std::{ops::Range, time::Instant};

/// What is known of such a time.
pub(super) struct Suspension {
    times: Times,
    /// For how many microseconds the clock stood still.
    missed: u64,
    /// Calls that were sent then were sent before or after that.
    doubtful: Range<Instant>,
}

impl Suspension {
    /// What a gap between two ticks shows. A wall clock that is ahead does not show when it was set.
    pub(super) fn new(times: Times, gap: Gap, ticks: Range<Instant>) -> Option<Self> {
        let (missed, doubtful) = match gap {
            Gap::None | Gap::Stopped => return None,
            Gap::Suspended(missed) => (missed, ticks),
            Gap::Doubtful(missed) => (missed, times.birth..ticks.end),
        };
        Some(Self {
            times,
            missed: missed.as_micros() as u64,
            doubtful,
        })
    }

    /// Ends a lease sooner if its last call was sent before. Returns whether that may be so.
    pub(super) fn advance(&self, lease: &Lease) -> bool {
        if self.was_sent_before(self.doubtful.start, lease) {
            lease.advance(self.missed);
        }
        self.was_sent_before(self.doubtful.end, lease)
    }

    /// The server could not be reached, so a lease counts as ended if it may have ended.
    pub(super) fn expire(&self, lease: &Lease, kept_until: u64) {
        let Range { start, end } = self.doubtful;
        if !self.was_sent_before(start, lease) && self.was_sent_before(end, lease) {
            lease.expire(self.times.now() + self.missed, kept_until);
        }
    }

    /// Whether the call that has acquired or refreshed the lease last was sent before `at`.
    fn was_sent_before(&self, at: Instant, lease: &Lease) -> bool {
        let deadline = match lease.is_provisional() {
            true => self.times.provisional_until(at),
            false => self.times.held_until(at),
        };
        lease.deadline() < deadline
    }
}
