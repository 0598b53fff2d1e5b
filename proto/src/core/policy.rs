//! The policy for claims while their server is unavailable, and the number of processes that share a limit.

use std::time::Duration;

/// The decision on claims while their server is unavailable. The docs of `WhenUnavailable` in tower-semaphore have the
/// terms.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum OutagePolicy {
    /// They are refused.
    #[default]
    Refuse,
    /// They are admitted.
    Admit,
    /// They are admitted up to the limit divided by the number of live processes, rounded up.
    Share,
    /// They are admitted up to this fraction of the limit, from 0 to 1, rounded up.
    ShareOf { fraction: f64 },
}

impl OutagePolicy {
    /// True for the two policies that admit claims up to a share.
    pub(super) fn shares(self) -> bool {
        matches!(self, Self::Share | Self::ShareOf { .. })
    }

    /// The units of a limit that this process may have, rounded up. `live` is the number of live processes, or 0 if it
    /// is unknown.
    pub(super) fn share(self, limit: u32, live: u32) -> u32 {
        match self {
            Self::Refuse => 0,
            Self::Admit => u32::MAX,
            Self::Share if live == 0 => limit.min(1),
            Self::Share => limit.div_ceil(live),
            Self::ShareOf { fraction } => {
                // A product that should be whole may be a little more, and would be rounded up.
                const ERROR: f64 = 1e-6;
                (f64::from(limit) * fraction - ERROR).ceil().max(0.0) as u32
            }
        }
    }
}

/// The number of live processes, from the counts that servers report. A server that has lost its data counts from one
/// again, so the highest count of the last one to two windows is used. An outage ages no count.
#[derive(Debug, Default)]
pub(super) struct LiveProcesses {
    /// The highest count in this window, and in the one before.
    most: [u32; 2],
    /// The time at which this window began.
    since: Duration,
    /// The time of the last count.
    last: Duration,
}

impl LiveProcesses {
    /// Records a count that a server has reported.
    pub(super) fn record(&mut self, count: u32, now: Duration, window: Duration) {
        let last = std::mem::replace(&mut self.last, now);
        if now - last > window / 2 {
            // Restarts the window: a count from before an outage stays valid for a full window.
            self.since = now;
        }
        if now - self.since > window {
            (self.most, self.since) = ([0, self.most[0]], now);
        }
        self.most[0] = self.most[0].max(count);
    }

    /// The number of live processes, or 0 before the first count.
    pub(super) fn count(&self) -> u32 {
        self.most[0].max(self.most[1])
    }
}

#[cfg(test)]
mod tests {
    use super::{
        LiveProcesses,
        OutagePolicy::{Admit, Refuse, Share, ShareOf},
    };
    use std::time::Duration;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_highest_count_of_the_last_one_to_two_windows_is_the_number_of_processes() {
        let (mut live, window) = (LiveProcesses::default(), seconds(10));
        let mut count_at = |second, count| {
            live.record(count, seconds(second), window);
            live.count()
        };
        assert_eq!(count_at(0, 5), 5);
        assert!((5..=25).step_by(5).all(|second| count_at(second, 2) == 5));
        assert_eq!(count_at(30, 2), 2);
        assert!((33..=50).step_by(3).all(|second| count_at(second, 1) == 2));
        assert_eq!(count_at(53, 1), 1);
    }

    #[test]
    fn an_outage_ages_no_count() {
        let (mut live, window) = (LiveProcesses::default(), seconds(10));
        for (second, count) in [(0, 5), (1_000, 1), (1_005, 1), (1_010, 1)] {
            live.record(count, seconds(second), window);
            assert_eq!(live.count(), 5);
        }
    }

    #[test]
    fn a_share_is_rounded_up() {
        assert_eq!(Share.share(20, 5), 4);
        assert_eq!(Share.share(20, 6), 4);
        assert_eq!(Share.share(1, 6), 1);
        assert_eq!(ShareOf { fraction: 0.15 }.share(20, 5), 3);
        assert_eq!(ShareOf { fraction: 0.16 }.share(20, 5), 4);
        assert_eq!(ShareOf { fraction: 0.0 }.share(20, 5), 0);
        assert_eq!(ShareOf { fraction: 1.0 }.share(u32::MAX, 5), u32::MAX);
    }

    #[test]
    fn before_the_first_count_a_process_takes_one_unit() {
        assert_eq!(Share.share(20, 0), 1);
    }

    #[test]
    fn without_a_share_nothing_or_everything_is_admitted() {
        assert_eq!((Refuse.share(20, 5), Admit.share(20, 5)), (0, u32::MAX));
    }
}
