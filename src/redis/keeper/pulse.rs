//! Detects that this process was stopped, or its machine suspended.

use std::{
    fs,
    ops::Range,
    time::{Duration, Instant, SystemTime},
};

/// The time of a tick, by three clocks.
pub(super) struct Pulse {
    /// By the monotonic clock, before and after the others were read.
    at: (Instant, Instant),
    /// Since the machine was started, if the system tells.
    boot: Option<Duration>,
    wall: SystemTime,
}

/// What happened between two ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// Nothing unusual.
    None,
    /// The process was stopped, so refreshes may have been missed.
    Stopped,
    /// The machine was suspended, and the monotonic clock stood still for so long.
    Suspended(Duration),
    /// The machine may have been suspended for so long, or the wall clock was set forward.
    Doubtful(Duration),
}

/// How far the boot-time clock may advance more than the monotonic clock between two ticks. It is
/// read with a resolution of 10 ms.
const RESOLUTION: Duration = Duration::from_millis(50);

/// The same for the wall clock, which is adjusted now and then.
const JITTER: Duration = Duration::from_secs(1);

impl Pulse {
    pub(super) fn now() -> Self {
        let start = Instant::now();
        let (boot, wall) = (boot_time(), SystemTime::now());
        Self {
            at: (start, Instant::now()),
            boot,
            wall,
        }
    }

    /// The time from the tick `last` until this one.
    pub(super) fn after(&self, last: &Self) -> Range<Instant> {
        last.at.0..self.at.1
    }

    /// What happened since the tick `last`. The monotonic clock stands still while a machine is
    /// suspended, and the boot-time clock does not. Without a boot-time clock the wall clock has to
    /// serve, but a wall clock that is set forward looks the same. A virtual machine that was paused
    /// shows no more than a wall clock that was set forward, so this is always a reason to refresh.
    pub(super) fn since(&self, last: &Self, refresh_interval: Duration) -> Gap {
        // At most so long, even if this thread was stopped between two readings.
        let Range { start, end } = self.after(last);
        let elapsed = end.saturating_duration_since(start);
        let boot = self.boot.zip(last.boot);
        let missed = boot.map(|(now, last)| now.saturating_sub(last).saturating_sub(elapsed));
        let wall = self.wall.duration_since(last.wall).unwrap_or_default();
        let jump = wall.saturating_sub(elapsed);
        match missed {
            Some(missed) if missed > RESOLUTION => Gap::Suspended(missed),
            None if jump > JITTER => Gap::Doubtful(jump),
            _ if jump > JITTER || elapsed > refresh_interval => Gap::Stopped,
            _ => Gap::None,
        }
    }
}

/// How long the machine has run, suspended or not. Only Linux has this file.
fn boot_time() -> Option<Duration> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let seconds = uptime.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A tick two seconds after `last`, whose boot-time and wall clocks show so many seconds more.
    fn later(last: &Pulse, boot: Option<u32>, wall: u32) -> Pulse {
        Pulse {
            at: (last.at.0 + 2 * SECOND, last.at.0 + 2 * SECOND),
            boot: last.boot.zip(boot).map(|(last, more)| last + more * SECOND),
            wall: last.wall + wall * SECOND,
        }
    }

    fn first() -> Pulse {
        let boot = Some(1_000 * SECOND);
        Pulse {
            boot,
            ..Pulse::now()
        }
    }

    #[test]
    fn a_suspended_machine_is_detected_by_the_boot_time_clock() {
        let last = first();
        let gap = later(&last, Some(62), 62).since(&last, 3 * SECOND);
        assert_eq!(gap, Gap::Suspended(60 * SECOND));
    }

    #[test]
    fn a_wall_clock_that_jumped_is_a_doubt_only_without_a_boot_time_clock() {
        let last = first();
        let gap = later(&last, None, 62).since(&last, 3 * SECOND);
        assert_eq!(gap, Gap::Doubtful(60 * SECOND));
        let gap = later(&last, Some(2), 62).since(&last, 3 * SECOND);
        assert_eq!(gap, Gap::Stopped);
    }

    #[test]
    fn a_wall_clock_that_was_set_back_or_drifts_is_ignored() {
        let last = first();
        for boot in [None, Some(2)] {
            for wall in [0, 2, 3] {
                assert_eq!(later(&last, boot, wall).since(&last, 3 * SECOND), Gap::None);
            }
        }
    }

    #[test]
    fn a_process_that_was_stopped_for_long_may_have_missed_refreshes() {
        let last = first();
        assert_eq!(later(&last, Some(2), 2).since(&last, SECOND), Gap::Stopped);
    }

    #[test]
    fn what_clocks_cannot_tell_apart_is_no_gap() {
        let last = first();
        let later = |boot: Option<Duration>, wall: Duration| Pulse {
            at: (last.at.0 + 2 * SECOND, last.at.0 + 2 * SECOND),
            boot: boot.map(|more| 1_000 * SECOND + 2 * SECOND + more),
            wall: last.wall + 2 * SECOND + wall,
        };
        let nothing = Some(Duration::ZERO);
        let pulses = [
            later(Some(RESOLUTION), Duration::ZERO),
            later(nothing, JITTER),
        ];
        for pulse in pulses {
            assert_eq!(pulse.since(&last, 2 * SECOND), Gap::None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_has_a_boot_time_clock() {
        let start = boot_time().expect("the file is readable");
        let bound = Instant::now() + 20 * SECOND;
        while boot_time().expect("the file is readable") == start {
            assert!(Instant::now() < bound, "it stands still");
        }
    }
}
