//! Whether a server works, computed from instants.

use super::time::{Settings, Time};
use std::time::Duration;

/// So many calls of the thread that fail in a row are an outage, unless they all end within a timeout: one stall of
/// the server, or of this process, fails all that are in flight.
const OUTAGE: u32 = 3;

/// The pause between two probes, at first and at most. A timeout is the longest too.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// How long a connect may take, and the longest pause before the next one.
const CONNECT: Duration = Duration::from_secs(3);

/// What a driver tells operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Outage {
    /// Claims are decided without the server.
    Begins,
    /// It answers again: if it `works`, with more than errors.
    Ends { works: bool },
}

/// What the calls to a server tell of it. A call is evidence of the instant at which it was sent.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// When the last call was sent that was answered.
    answered: Time,
    failing: Option<Failing>,
    /// When it has answered after calls of the thread had failed.
    returned: Option<Time>,
}

/// Calls that have failed in a row.
#[derive(Debug, Clone, Copy)]
struct Failing {
    /// When the first of them was sent.
    since: Time,
    /// When the first and the last of them failed.
    first: Time,
    last: Time,
    /// How many of them were the thread's. The runtime of a caller may stand still.
    of_thread: u32,
}

impl Health {
    /// A call was answered that was sent then. Returns whether it ends a row of failures. If the server was there within
    /// the last timeout, no process has taken it for unavailable, as when only a subscription of the thread has ended.
    pub(super) fn works(&mut self, sent: Time, now: Time, settings: &Settings) -> bool {
        let was_silent = self.answered + settings.timeout <= now;
        self.answered = self.answered.max(sent);
        let over = self.failing.take_if(|failing| failing.since <= sent);
        if over.is_some_and(|failing| failing.of_thread > 0) && was_silent {
            self.returned = Some(now);
        }
        over.is_some()
    }

    /// The server takes over from one that is not well.
    pub(super) fn succeeds(&mut self, now: Time) {
        self.returned = Some(now);
    }

    /// A call failed that was sent then.
    pub(super) fn fails(&mut self, sent: Time, now: Time, is_of_thread: bool) {
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

    /// Whether only probes are sent, and the policy decides claims.
    pub(super) fn is_open(&self, settings: &Settings) -> bool {
        self.failing.is_some_and(|failing| {
            let is_stall = failing.last - failing.first < settings.timeout;
            failing.of_thread >= OUTAGE && !is_stall
        })
    }

    /// Whether it has failed for so long that it has not just answered others.
    pub(super) fn is_clear(&self, now: Time, settings: &Settings) -> bool {
        let is_clear = |failing: Failing| failing.since + settings.timeout <= now;
        self.failing.is_some_and(is_clear)
    }

    /// Whether no process can have taken it for unavailable, and acts on that yet.
    pub(super) fn is_well(&self, now: Time, settings: &Settings) -> bool {
        let settles = CONNECT + settings.timeout * 4 + settings.short_tick() * 2;
        let has_settled = |returned| returned + settles <= now;
        self.failing.is_none() && self.returned.is_none_or(has_settled)
    }

    /// How long after a failed probe the next one is sent.
    pub(super) fn pause(&self, settings: &Settings) -> Duration {
        let failures = self.failing.map_or(0, |failing| failing.of_thread);
        let pause = PAUSE.0 * (1 << failures.min(4));
        pause.min(PAUSE.1).min(settings.timeout)
    }
}
