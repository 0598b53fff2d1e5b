//! A lease: a run of neighbouring levels of a claim that one script may name. It is acquired, refreshed and
//! released as a whole.

use super::{
    call::{Flight, Sent},
    id::CallId,
    time::{FOREVER, Time},
};
use crate::verbs::Queued;
use std::{ops::Range, time::Duration};

/// The queue in which a lease waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Releases,
    Refreshes,
    Polls,
    Claims,
}

#[derive(Debug, Default)]
pub(super) enum State {
    /// It waits for the narrower lease before it, or is over.
    #[default]
    Idle,
    /// It should be acquired.
    Wanted,
    /// It waits in the queue of one of its levels, by the level's number in the permit. The time is that of the last
    /// answered poll, when it was sent.
    Queued(Queued, Time),
    /// It is held until this time. Then its holder is notified of the loss.
    Held(Time),
    /// A server did not find it, or its end has passed. It should be acquired again.
    Lost(Lost),
    Released(Released),
}

#[derive(Debug)]
pub(super) struct Lost {
    /// The end that the holder knows: [`FOREVER`] if the holder goes on while the server is unavailable, `None` if the
    /// holder was notified of the loss.
    pub(super) end: Option<Time>,
    /// True if the server has reported that it has nothing of the lease, and no acquire was sent since.
    pub(super) is_gone: bool,
}

#[derive(Debug, Default)]
pub(super) struct Released {
    /// The time at which the server has forgotten the lease by itself.
    pub(super) gives_up: Time,
    /// The time until which the lease was known to be held.
    pub(super) held_until: Time,
    /// The number of releases without an answer.
    pub(super) in_flight: usize,
    pub(super) last: Option<Sent>,
    /// True if no acquire can run after the last release.
    pub(super) is_settled: bool,
    /// True once such a release was answered. The answer to another release may still report that it found the lease.
    pub(super) is_over: bool,
    /// True if an unanswered release may have run, at least in part.
    pub(super) may_have_run: bool,
    /// True if the releases have found all of the lease.
    pub(super) was_held: bool,
    /// True if the thread should send a second release, because the runtime that sent the first may be stalled.
    pub(super) is_stalled: bool,
}

impl Released {
    /// Takes the lease for found if a release without an answer may have run before the lease's end.
    pub(super) fn count_unanswered(&mut self, now: Time) {
        self.was_held |= self.may_have_run && now < self.held_until;
    }
}

#[derive(Debug, Default)]
pub(super) struct Lease {
    /// All levels of a lease are in one slot, so one script may name them.
    pub(super) slot: u16,
    /// The server for the next command, if the slot is moving to that server.
    pub(super) asks: Option<usize>,
    /// The numbers of its levels in the permit.
    pub(super) levels: Range<usize>,
    pub(super) state: State,
    /// The time at which its next call is due.
    pub(super) next: Time,
    /// The queue and the server for which it was last queued.
    pub(super) waits_in: Option<(Queue, usize)>,
    /// True if a separate command must name it, because a command for several leases has failed with an error of a key.
    pub(super) is_alone: bool,
    /// True if a message about its grant, or to poll, arrived before the answer that it waits.
    pub(super) was_notified: bool,
    /// The acquire or refresh in flight.
    pub(super) call: Option<CallId>,
    /// The call in flight that still names units which the lease has given up since, and so does not find them all.
    pub(super) outdated: Option<CallId>,
    /// True once an acquire under the current id has been sent.
    pub(super) was_sent: bool,
    /// The number of calls of it that had no answer.
    pub(super) unanswered: u32,
    /// The time that the last acquire or refresh lasts on the server.
    pub(super) length: Duration,
    /// The time until which the server may have the lease, after all that was sent.
    pub(super) lasts: Time,
    /// The acquires that may still run.
    pub(super) may_run: Vec<Sent>,
}

impl Lease {
    pub(super) fn new(slot: u16, levels: Range<usize>) -> Self {
        Self {
            slot,
            levels,
            ..Self::default()
        }
    }

    /// The queue for its next call. `None` if no call is needed.
    pub(super) fn queue(&self) -> Option<Queue> {
        match &self.state {
            State::Idle => None,
            State::Released(released) => {
                // A release that was sent while an acquire could run is followed by another once none can.
                let is_useless = !released.is_settled && self.runs().next().is_none();
                let is_due = released.in_flight == 0 || is_useless || released.is_stalled;
                (is_due && !released.is_over).then_some(Queue::Releases)
            }
            // Rule 9.
            _ if self.call.is_some() => None,
            State::Held(_) => Some(Queue::Refreshes),
            State::Queued(..) => Some(Queue::Polls),
            State::Wanted | State::Lost(_) => Some(Queue::Claims),
        }
    }

    /// The queue in which it waits. An outdated entry does not count, such as a poll of a lease that a message has
    /// granted.
    pub(super) fn waits(&self) -> Option<(Queue, usize)> {
        let queue = self.queue();
        self.waits_in.filter(|(waits, _)| Some(*waits) == queue)
    }

    /// The time at which its holder is notified of the loss, or its release is given up.
    pub(super) fn end(&self) -> Option<Time> {
        match &self.state {
            State::Held(end) => Some(*end),
            State::Lost(lost) => lost.end,
            State::Released(released) => Some(released.gives_up),
            State::Idle | State::Wanted | State::Queued(..) => None,
        }
    }

    /// True if its holder goes on without its server.
    pub(super) fn is_degraded(&self) -> bool {
        matches!(&self.state, State::Lost(lost) if lost.end == Some(FOREVER))
    }

    /// Its earliest timer.
    pub(super) fn timer(&self) -> Option<Time> {
        let is_to_be_put = self.queue().is_some() && self.waits().is_none();
        let send = is_to_be_put.then_some(self.next);
        [send, self.end()].into_iter().flatten().min()
    }

    /// True if it is lost and should be acquired again.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.state, State::Lost(_))
    }

    /// The number of the level in whose queue it waits.
    pub(super) fn queued_at(&self) -> Option<usize> {
        match &self.state {
            State::Queued(queued, _) => Some(queued.level),
            _ => None,
        }
    }

    /// True if the server may have it now or later.
    pub(super) fn may_be_known(&self, now: Time) -> bool {
        let is_gone = matches!(&self.state, State::Lost(lost) if lost.is_gone);
        self.was_sent && (!is_gone || self.runs_until() > now)
    }

    /// True if its holder may rely on it.
    pub(super) fn is_held(&self) -> bool {
        match &self.state {
            State::Held(_) => true,
            State::Lost(lost) => lost.end.is_some(),
            _ => false,
        }
    }

    fn runs(&self) -> impl Iterator<Item = &Sent> {
        self.may_run.iter().filter(|run| !run.left.is_over())
    }

    /// The time until which an acquire may still run.
    pub(super) fn runs_until(&self) -> Time {
        let untils = self.runs().map(|run| run.until);
        untils.max().unwrap_or_default()
    }

    /// True if no acquire can run after a release in this call (rule 3).
    pub(super) fn is_settled(&self, flight: &Flight) -> bool {
        let mut runs = self.runs();
        runs.all(|run| run.until <= flight.sent || run.is_before(flight))
    }

    /// Notes that a call with an acquire or a refresh of it is sent.
    pub(super) fn sent(&mut self, flight: &Flight, acquires: bool, length: Duration) {
        self.call = Some(flight.id);
        self.length = length;
        // A refresh that arrives late still finds the lease, as long as the earlier calls made it last.
        self.lasts = match acquires {
            false => self.lasts.max(flight.deadline) + length,
            true => self.lasts.max(flight.deadline + length),
        };
        if acquires {
            self.was_sent = true;
            self.may_run.retain(|run| !run.left.is_over());
            self.may_run.reserve_exact(1);
            self.may_run.push(Sent::in_call(flight));
            if let State::Lost(lost) = &mut self.state {
                lost.is_gone = false;
            }
        }
    }

    /// Notes an answered refresh. Each call without an answer may still run while the lease lasts, and prolong it once.
    pub(super) fn refreshed(&mut self, now: Time) {
        self.lasts = now + self.length * (1 + self.unanswered);
    }

    /// Notes that it is held at least until `end`.
    pub(super) fn hold(&mut self, end: Time) {
        let before = match self.state {
            State::Held(before) => before,
            _ => end,
        };
        self.state = State::Held(end.max(before));
        self.is_alone = false;
    }

    /// Notes that a call with a release of it is sent.
    pub(super) fn release_sent(&mut self, flight: &Flight) {
        self.waits_in = None;
        let is_settled = self.is_settled(flight);
        if let State::Released(released) = &mut self.state {
            released.in_flight += 1;
            released.is_stalled = false;
            released.last = Some(Sent::in_call(flight));
            released.is_settled = is_settled;
        }
    }

    /// A lease for the release of units that a server may have of some of its levels.
    pub(super) fn part(&self, levels: Range<usize>) -> Self {
        Self {
            was_sent: true,
            lasts: self.lasts,
            may_run: self.may_run.clone(),
            ..Self::new(self.slot, levels)
        }
    }

    /// Forgets all calls, because the lease gets a new id, under which none was sent.
    pub(super) fn forget(&mut self) {
        (self.call, self.was_sent, self.unanswered) = (None, false, 0);
        self.may_run.clear();
        if let State::Lost(lost) = &mut self.state {
            lost.is_gone = true;
        }
    }

    /// The arrival that a server has returned for a level, or 0.
    pub(super) fn arrival_at(&self, level: usize) -> u64 {
        match &self.state {
            State::Queued(queued, _) if queued.level == level => queued.arrival,
            _ => 0,
        }
    }

    pub(super) fn release(&mut self, now: Time) {
        let gives_up = self.lasts.max(now);
        let held_until = match self.state {
            State::Held(end) => end,
            _ => Time::ZERO,
        };
        self.state = State::Released(Released {
            gives_up,
            held_until,
            ..Released::default()
        });
        (self.next, self.waits_in) = (now, None);
    }
}
