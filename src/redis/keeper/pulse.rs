//! Detects that this process was stopped, or its machine suspended.

use std::time::{Duration, Instant, SystemTime};

/// The time of a tick, by the monotonic clock and by the wall clock.
pub(super) struct Pulse {
    at: Instant,
    wall: SystemTime,
}

/// How far the wall clock may advance more than the monotonic clock between two ticks before the
/// machine counts as having been suspended.
const JITTER: Duration = Duration::from_secs(1);

impl Pulse {
    pub(super) fn new(at: Instant) -> Self {
        let wall = SystemTime::now();
        Self { at, wall }
    }

    /// How long the monotonic clock stood still since this tick, as it does while a machine is
    /// suspended. The wall clock advances meanwhile. A wall clock that was set forward looks the same.
    pub(super) fn missed(&self, now: Instant, wall: SystemTime) -> Duration {
        let wall = wall.duration_since(self.wall).unwrap_or_default();
        let missed = wall.saturating_sub(now.saturating_duration_since(self.at));
        if missed > JITTER {
            missed
        } else {
            Duration::ZERO
        }
    }

    /// Whether this process was stopped for so long that a refresh may have been missed.
    pub(super) fn has_slept(&self, now: Instant, refresh_interval: Duration) -> bool {
        now.saturating_duration_since(self.at) > refresh_interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_suspended_machine_is_detected_by_the_wall_clock() {
        let pulse = Pulse::new(Instant::now());
        let missed = pulse.missed(pulse.at + SECOND, pulse.wall + 61 * SECOND);
        assert_eq!(missed, 60 * SECOND);
    }

    #[test]
    fn a_wall_clock_that_was_set_back_or_drifts_is_ignored() {
        let pulse = Pulse::new(Instant::now());
        let now = pulse.at + SECOND;
        assert!(pulse.missed(now, pulse.wall - 60 * SECOND).is_zero());
        assert!(pulse.missed(now, pulse.wall + 2 * SECOND).is_zero());
        assert!(!pulse.has_slept(now, 2 * SECOND) && pulse.has_slept(now, SECOND / 2));
    }
}
