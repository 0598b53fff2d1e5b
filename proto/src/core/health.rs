//! The health of a server, computed from instants.

use super::time::{CoreSettings, Time};
use std::time::Duration;

/// An outage begins once this number of calls of the keeper's thread have failed in a row, and at least a timeout lies
/// between the first failure, of a call of any runtime, and the thread's last. A shorter time may be a single stall of
/// the server or of this process, which fails all calls in flight.
const OUTAGE_FAILURES: u32 = 3;

/// The pause before a probe if no call of the thread has failed. It doubles with each failed call, at most four
/// times.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause before a probe. With a shorter timeout, the timeout is the longest.
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(500);

/// The longest time of an attempt to connect, including the longest pause before the next one.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// The begin or end of an outage, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Claims are decided without the server.
    Begins,
    /// The server answers a call again. `works` is false if a command of that call has failed, or if the server refuses
    /// connections.
    Ends { works: bool },
}

/// The results of the calls to a server. A call is evidence for the instant at which it was sent (rule 11).
#[derive(Debug, Default)]
pub(super) struct Health {
    /// The time at which the last answered call was sent.
    answered: Time,
    failing: Option<Failing>,
    /// The time at which the server last came back in one of three ways. It answered after calls of the thread had
    /// failed and no call was answered for a timeout; it no longer refuses connections; or it took over slots from a
    /// server that was not well.
    returned: Option<Time>,
}

/// Calls that have failed in a row.
#[derive(Debug, Clone, Copy)]
struct Failing {
    /// The time at which the first of them was sent.
    since: Time,
    /// The time at which the first of them failed.
    first: Time,
    /// The time at which the thread's last one failed, or else `first`.
    last: Time,
    /// The number of the thread's calls among them. Others prove little, because a caller's runtime may stall.
    of_thread: u32,
}

impl Health {
    /// Notes the answer to a call that was sent at `sent`. Returns true if it ends a row of failures. A server that has
    /// answered within the last timeout does not count as returned, because no process can have treated it as
    /// unavailable. Such failures are, for example, those of calls whose connection ended with the thread's
    /// subscription.
    pub(super) fn note_answer(&mut self, sent: Time, now: Time, settings: &CoreSettings) -> bool {
        let was_silent = self.answered + settings.timeout <= now;
        self.answered = self.answered.max(sent);
        let over = self.failing.take_if(|failing| failing.since <= sent);
        if over.is_some_and(|failing| failing.of_thread > 0) && was_silent {
            self.returned = Some(now);
        }
        over.is_some()
    }

    /// Notes that the server is back, or takes over slots of a server that is not well.
    pub(super) fn note_return(&mut self, now: Time) {
        self.returned = Some(now);
    }

    /// Notes the failure of a call that was sent at `sent`.
    pub(super) fn note_failure(&mut self, sent: Time, now: Time, is_of_thread: bool) {
        if sent < self.answered {
            return;
        }
        let failing = self.failing.get_or_insert(Failing {
            since: sent,
            first: now,
            last: now,
            of_thread: 0,
        });
        failing.since = failing.since.min(sent);
        if is_of_thread {
            (failing.last, failing.of_thread) = (now, failing.of_thread + 1);
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// True during an outage: only probes are sent, and the policy for outages decides claims.
    pub(super) fn is_in_outage(&self, settings: &CoreSettings) -> bool {
        self.failing.is_some_and(|failing| {
            let is_stall = failing.last - failing.first < settings.timeout;
            failing.of_thread >= OUTAGE_FAILURES && !is_stall
        })
    }

    /// True if at least a timeout has passed since the first failed call was sent. Before that, the server may just
    /// have answered other processes.
    pub(super) fn has_failed_long(&self, now: Time, settings: &CoreSettings) -> bool {
        let is_long = |failing: Failing| failing.since + settings.timeout <= now;
        self.failing.is_some_and(is_long)
    }

    /// True if the server answers, and each process that treated it as unavailable has had the time to notice that it
    /// is back.
    pub(super) fn is_well(&self, now: Time, settings: &CoreSettings) -> bool {
        // A bound on the time in which every other process notices that the server is back: its attempt to connect, the
        // pause before a probe, the probe, two more calls, and the keeper's ticks between them.
        let settles = CONNECT_TIME + settings.timeout * 4 + settings.short_tick() * 2;
        let has_settled = |returned| returned + settles <= now;
        self.failing.is_none() && self.returned.is_none_or(has_settled)
    }

    /// The pause between a failed probe and the next one.
    pub(super) fn pause(&self, settings: &CoreSettings) -> Duration {
        let failures = self.failing.map_or(0, |failing| failing.of_thread);
        let pause = PROBE_PAUSE * (1 << failures.min(4));
        pause.min(LONGEST_PROBE_PAUSE).min(settings.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::settings;

    /// The instant this number of ms after the last answer. A timeout is 250 ms.
    fn at(ms: u64) -> Time {
        Time::from_millis(100_000 + ms)
    }

    /// A server that answered at 0. Calls of the thread failed at these times, each sent 10 ms earlier.
    fn failed(times: &[u64]) -> Health {
        let mut health = Health::default();
        health.note_answer(at(0), at(0), &settings());
        for ms in times {
            health.note_failure(at(ms - 10), at(*ms), true);
        }
        health
    }

    #[test]
    fn three_failures_over_a_timeout_are_an_outage() {
        let is_outage = |times: &[u64]| failed(times).is_in_outage(&settings());
        assert!(is_outage(&[100, 200, 350]));
        assert!(!is_outage(&[100, 350]), "these are two");
        assert!(!is_outage(&[100, 200, 349]), "this may be one stall");
    }

    #[test]
    fn failures_of_callers_are_no_outage() {
        let mut health = Health::default();
        for ms in [100, 200, 350, 1_000] {
            health.note_failure(at(ms), at(ms), false);
        }
        assert!(health.is_failing() && !health.is_in_outage(&settings()));
    }

    /// Rule 11.
    #[test]
    fn a_call_is_evidence_for_the_instant_at_which_it_was_sent() {
        let mut health = failed(&[100]);
        assert!(!health.note_answer(at(89), at(120), &settings()));
        assert!(health.is_failing(), "that call was sent before");
        assert!(health.note_answer(at(90), at(130), &settings()));
        assert!(!health.is_failing());
        health.note_failure(at(89), at(140), true);
        assert!(!health.is_failing(), "a later call was answered");
        health.note_failure(at(90), at(150), true);
        assert!(health.is_failing());
    }

    #[test]
    fn a_server_has_failed_long_a_timeout_after_its_first_failed_call_was_sent() {
        let health = failed(&[100]);
        assert!(!health.has_failed_long(at(339), &settings()));
        assert!(health.has_failed_long(at(340), &settings()));
    }

    /// The runtime of the caller may have stalled.
    #[test]
    fn a_server_is_well_after_an_answer_if_only_calls_of_callers_have_failed() {
        let mut health = Health::default();
        health.note_failure(at(100), at(110), false);
        assert!(health.note_answer(at(110), at(1_000), &settings()));
        assert!(health.is_well(at(1_000), &settings()));
    }

    #[test]
    fn a_server_that_was_silent_for_a_timeout_is_well_only_a_while_after_it_is_back() {
        for (back, is_well) in [(249, true), (250, false)] {
            let mut health = failed(&[100]);
            health.note_answer(at(110), at(back), &settings());
            assert_eq!(health.is_well(at(back), &settings()), is_well);
            assert!(health.is_well(at(10_000), &settings()));
        }
    }
}
