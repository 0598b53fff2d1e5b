//! A server: its clock, its health, and the work that waits to be sent to it.

use super::{
    health::Health,
    id::{DebtId, RuntimeId},
    time::{CoreSettings, Time},
};
use std::{collections::VecDeque, ops::Range, time::Duration};

/// Ranges of slots, each with its server.
pub type SlotRanges = Vec<(Range<usize>, usize)>;

/// A change of a server, or of a runtime's connection to it.
#[derive(Debug, Clone)]
pub enum Change {
    Connected(RuntimeId, usize),
    /// A new connection has replaced a mute one. Calls that were sent over the old one may still run.
    Replaced(RuntimeId, usize),
    /// A connection has ended, or an attempt to make one has failed. The driver reports the failure of each call in
    /// flight separately.
    Gone(RuntimeId, usize),
    /// These slots are on that server.
    Slots(SlotRanges),
    /// No connection was made.
    NotConnected {
        server: usize,
        /// True if the server refused it, for example because of a wrong password.
        is_denied: bool,
    },
}

/// How long a release that is not urgent waits for a call that can include it. The thread's timers count full
/// milliseconds, so without such a call 1.2 to 2.4 ms pass.
const RELEASE_DELAY: Duration = Duration::from_micros(250);

/// A sample below the estimate of the clock lowers it by the difference divided by this. So the estimate follows drift,
/// and slow answers hardly change it.
const DRIFT_DIVISOR: i64 = 256;

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) health: Health,
    /// The server's clock minus ours, in microseconds: a lower bound.
    offset: Option<i64>,
    /// The time at which messages were last lost, or the last call was sent that did not find a lease.
    pub(super) lost_before: Time,
    /// The time of this process's next announcement. `None` before the thread's first connection, and while an
    /// announcement waits or is in flight.
    pub(super) presence_at: Option<Time>,
    /// True if another announcement is due after the answer to the one in flight, because a key has moved here since.
    pub(super) must_announce_again: bool,
    /// True if the announcement waits to be sent.
    pub(super) announces: bool,
    /// True from a refused connection until a call whose commands all ran, or an attempt to connect that failed for
    /// another reason.
    pub(super) is_denied: bool,
    /// The debts whose releases wait to be sent.
    pub(super) releases: VecDeque<DebtId>,
    /// The time at which releases are sent that no call has included.
    pub(super) release_at: Option<Time>,
    /// True if the first runtime that enters the core should send the releases.
    pub(super) releases_now: bool,
}

impl Server {
    /// True if it accepts connections and answers, and each process that treated it as unavailable has had the time to
    /// notice that it is back.
    pub(super) fn is_well(&self, now: Time, settings: &CoreSettings) -> bool {
        !self.is_denied && self.health.is_well(now, settings)
    }

    // Its clock. Each answer contains the server's time, which the script read before the answer arrived. So the
    // server's clock now shows at least that time plus the time since.

    /// Takes the server's time in ms from the answer to a call, which was sent at `sent` and is answered now. If the
    /// estimate is too high even for a server that read its clock at `sent`, the clock was set back. Then the sample
    /// replaces it.
    pub(super) fn observe(&mut self, server_ms: u64, (sent, now): (Time, Time)) {
        let time = server_ms as i64 * 1_000;
        let (sample, highest) = (time - micros(now), time + 1_000 - micros(sent));
        self.offset = Some(match self.offset {
            Some(old) if sample < old && old <= highest => old - (old - sample) / DRIFT_DIVISOR,
            _ => sample,
        });
    }

    pub(super) fn is_clock_known(&self) -> bool {
        self.offset.is_some()
    }

    /// The least time that its clock can show at `then`, in ms.
    pub(super) fn clock_at(&self, then: Time) -> u64 {
        (self.offset.unwrap_or_default() + micros(then)).max(0) as u64 / 1_000
    }

    /// The last whole millisecond that is over by its clock at `then`, whatever the delay of the answers. Scripts count
    /// whole milliseconds too, so a command whose deadline is this one never runs after `then`.
    pub(super) fn last_ms_before(&self, then: Time) -> u64 {
        self.clock_at(then).saturating_sub(1)
    }

    // Waiting work.

    /// Adds a release. Unless it is urgent, it waits a moment for a call that can include it.
    pub(super) fn release(&mut self, now: Time, debt: DebtId, is_urgent: bool) {
        self.releases.push_back(debt);
        let by = if is_urgent { now } else { now + RELEASE_DELAY };
        self.releases_now |= is_urgent;
        self.release_at = Some(self.release_at.map_or(by, |other| other.min(by)));
    }

    /// Notes that waiting releases were put into a call.
    pub(super) fn note_releases_sent(&mut self) {
        if self.releases.is_empty() {
            (self.release_at, self.releases_now) = (None, false);
        }
    }

    pub(super) fn timer(&self) -> Option<Time> {
        let release = self.release_at.filter(|_| !self.releases_now);
        release.into_iter().chain(self.presence_at).min()
    }

    /// Handles the timers that are due.
    pub(super) fn handle_timers(&mut self, now: Time) {
        if self.release_at.is_some_and(|at| at <= now) {
            self.releases_now = true;
        }
        if self.presence_at.is_some_and(|at| at <= now) {
            (self.announces, self.presence_at) = (true, None);
        }
    }
}

/// The highest time that any server has shown to any process, minus our clock at that time, in microseconds. First
/// tokens are at least as high, so tokens grow even if a clock is set back, or a semaphore moves to a server whose
/// clock is behind.
#[derive(Debug, Default)]
pub(super) struct Highest(i64);

impl Highest {
    pub(super) fn raise(&mut self, micros_then: u64, now: Time) {
        self.0 = self.0.max(micros_then as i64 - micros(now));
    }

    /// The time that the furthest clock would show now.
    pub(super) fn floor(&self, now: Time) -> u64 {
        (self.0 + micros(now)).max(0) as u64
    }
}

fn micros(time: Time) -> i64 {
    time.as_micros() as i64
}

#[cfg(test)]
mod tests {
    use super::{Highest, Server, Time};
    use std::time::Duration;

    #[test]
    fn an_answer_that_took_long_lowers_the_estimate_of_the_clock_a_little() {
        let mut server = Server::default();
        let at = |ms: u64| Time::from_millis(100_000 + ms);
        server.observe(1_000_000, (at(0), at(0)));
        server.observe(1_000_744, (at(744), at(1_000)));
        // The sample is 256 ms below the estimate, and lowers it by a 256th of that.
        assert_eq!(server.clock_at(at(1_000)), 1_000_999);
    }

    /// The script accepts a command for the whole of the last millisecond.
    #[test]
    fn a_deadline_ends_with_a_millisecond_of_the_servers_clock() {
        let mut server = Server::default();
        let start = Time::from_secs(100);
        server.observe(1_000_000, (start, start));
        for micros in [0, 1, 500, 999, 1_000] {
            let then = start + Duration::from_micros(5_000 + micros);
            let end = (server.last_ms_before(then) + 1) * 1_000;
            let shown = 1_000_000_000 + 5_000 + micros;
            assert!(end <= shown && shown - end < 1_000, "{micros}");
        }
    }

    #[test]
    fn the_highest_time_goes_on_and_never_falls() {
        let (mut highest, at) = (Highest::default(), Time::from_secs);
        highest.raise(500_000_000, at(100));
        assert_eq!(highest.floor(at(101)), 501_000_000);
        highest.raise(400_000_000, at(102));
        assert_eq!(highest.floor(at(103)), 503_000_000);
    }

    #[test]
    fn one_answer_is_enough_to_notice_that_a_clock_was_set_back() {
        let (mut server, start) = (Server::default(), Time::from_secs(100));
        let at = |seconds| start + Duration::from_secs(seconds);
        server.observe(1_000_000, (at(0), at(0)));
        server.observe(1_001_000, (at(1), at(1)));
        assert_eq!(server.clock_at(at(1)), 1_001_000);
        server.observe(992_000, (at(2), at(2)));
        assert_eq!(server.clock_at(at(2)), 992_000);
    }
}
