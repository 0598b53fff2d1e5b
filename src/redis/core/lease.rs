//! A lease: a run of neighbouring levels of a claim that one script may name. It is acquired, refreshed and
//! released as a whole.

use super::{
    call::{Flight, Sent},
    id::CallId,
    time::{FOREVER, Time},
};
use crate::redis::protocol::Queued;
use std::{ops::Range, time::Duration};

/// Where a lease waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Releases,
    Refreshes,
    Polls,
    Claims,
}

#[derive(Debug, Default)]
pub(super) enum State {
    /// It waits for the lease before it, or is over.
    #[default]
    Idle,
    /// It is to be acquired.
    Wanted,
    /// It waits in the queue of one of its levels, by its number in the permit. The last answered poll was sent then.
    Queued(Queued, Time),
    /// Until then, when its holder is told that it is lost.
    Held(Time),
    /// A server did not find it, or its end has come. It is to be acquired again.
    Lost(Lost),
    Released(Released),
}

#[derive(Debug)]
pub(super) struct Lost {
    /// The end that its holder knows: [`FOREVER`] if the holder was told to go on while its server is unavailable.
    /// `None`: the holder was told that it is lost.
    pub(super) end: Option<Time>,
    /// Whether the server has said that it has nothing of it, and nothing was sent since.
    pub(super) is_gone: bool,
}

#[derive(Debug, Default)]
pub(super) struct Released {
    /// When the server has forgotten it by itself.
    pub(super) gives_up: Time,
    /// Until when it was known to be held.
    pub(super) held_until: Time,
    /// How many releases have no answer; and the last one.
    pub(super) in_flight: usize,
    pub(super) last: Option<Sent>,
    /// Whether the last one is the last word.
    pub(super) is_settled: bool,
    /// True once an answered release was the last word. The answer of another one may still report that it has found the
    /// lease.
    pub(super) is_over: bool,
    /// Whether one that has no answer may have run, or a part of it.
    pub(super) may_have_run: bool,
    /// Whether they have found all of the lease.
    pub(super) was_held: bool,
    /// True if the thread should send a second release, because the runtime that sent the first may be stalled.
    pub(super) is_stalled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lease {
    /// One script may name the leases of one slot.
    pub(super) slot: u16,
    /// The server that is asked once instead of the one that has the slot, because the slot is moving there.
    pub(super) asks: Option<usize>,
    /// The numbers of its levels.
    pub(super) levels: Range<usize>,
    pub(super) state: State,
    /// When its next call is due.
    pub(super) next: Time,
    /// Where it was last put to be sent, and for which server.
    pub(super) waits_in: Option<(Queue, usize)>,
    /// Whether a command names only it: one that named others too has met an error of a key.
    pub(super) is_alone: bool,
    /// A message has told of its grant, or to poll, before the answer that it waits.
    pub(super) was_notified: bool,
    /// The acquire or refresh in flight.
    pub(super) call: Option<CallId>,
    /// The one that names units that were given up since, so it does not find them all.
    pub(super) outdated: Option<CallId>,
    /// Whether an acquire of it was ever sent.
    pub(super) was_sent: bool,
    /// Whether a call of it had no answer.
    pub(super) was_unanswered: bool,
    /// How long what was sent last lasts on the server, and until when all that was sent.
    pub(super) length: Duration,
    pub(super) lasts: Time,
    /// The acquires that may run yet.
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

    /// Where its next call waits to be sent, by what that is for. `None`: there is none.
    pub(super) fn queue(&self) -> Option<Queue> {
        match &self.state {
            State::Idle => None,
            State::Released(released) => {
                // One that was sent while an acquire could run is followed by another when none can.
                let is_useless = !released.is_settled && self.runs().next().is_none();
                let is_due = released.in_flight == 0 || is_useless || released.is_stalled;
                (is_due && !released.is_over).then_some(Queue::Releases)
            }
            _ if self.call.is_some() => None,
            State::Held(_) => Some(Queue::Refreshes),
            State::Queued(..) => Some(Queue::Polls),
            State::Wanted | State::Lost(_) => Some(Queue::Claims),
        }
    }

    /// Where it waits. One that was granted by a message waits no longer as a poll.
    pub(super) fn waits(&self) -> Option<(Queue, usize)> {
        let queue = self.queue();
        self.waits_in.filter(|(waits, _)| Some(*waits) == queue)
    }

    /// When its holder is told that it is lost, or its release is given up.
    pub(super) fn end(&self) -> Option<Time> {
        match &self.state {
            State::Held(end) => Some(*end),
            State::Lost(lost) => lost.end,
            State::Released(released) => Some(released.gives_up),
            State::Idle | State::Wanted | State::Queued(..) => None,
        }
    }

    /// Whether its holder was told to go on without its server.
    pub(super) fn is_degraded(&self) -> bool {
        matches!(&self.state, State::Lost(lost) if lost.end == Some(FOREVER))
    }

    /// The least of its timers.
    pub(super) fn timer(&self) -> Option<Time> {
        let is_to_be_put = self.queue().is_some() && self.waits().is_none();
        let send = is_to_be_put.then_some(self.next);
        [send, self.end()].into_iter().flatten().min()
    }

    /// Whether it is to be acquired again.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.state, State::Lost(_))
    }

    /// The level in whose queue it waits, by its number in the permit.
    pub(super) fn queued_at(&self) -> Option<usize> {
        match &self.state {
            State::Queued(queued, _) => Some(queued.level),
            _ => None,
        }
    }

    /// Whether the server may know it, or will.
    pub(super) fn may_be_known(&self, now: Time) -> bool {
        let is_gone = matches!(&self.state, State::Lost(lost) if lost.is_gone);
        self.was_sent && (!is_gone || self.runs_until() > now)
    }

    /// Whether its holder may rely on it.
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

    /// Until when an acquire may run.
    pub(super) fn runs_until(&self) -> Time {
        let untils = self.runs().map(|run| run.until);
        untils.max().unwrap_or_default()
    }

    /// Whether a release that is sent with this call is the last word: no acquire can run after it.
    pub(super) fn is_settled(&self, flight: &Flight) -> bool {
        let mut runs = self.runs();
        runs.all(|run| run.until <= flight.sent || run.is_before(flight))
    }

    /// An acquire or a refresh of it leaves.
    pub(super) fn sent(&mut self, flight: &Flight, acquires: bool, length: Duration) {
        self.call = Some(flight.id);
        self.length = length;
        // A refresh that arrives late finds the lease for as long as what was sent before lasts.
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

    /// A refresh was answered. If no other call may run yet, it says how long the lease lasts.
    pub(super) fn refreshed(&mut self, now: Time) {
        if !self.was_unanswered {
            self.lasts = now + self.length;
        }
    }

    /// It is held from the sending of a call on, until then at least.
    pub(super) fn hold(&mut self, end: Time) {
        let before = match self.state {
            State::Held(before) => before,
            _ => end,
        };
        self.state = State::Held(end.max(before));
        self.is_alone = false;
    }

    /// A release of it leaves.
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

    /// What a server may have of some of its levels, to be released.
    pub(super) fn part(&self, levels: Range<usize>) -> Self {
        Self {
            was_sent: true,
            lasts: self.lasts,
            may_run: self.may_run.clone(),
            ..Self::new(self.slot, levels)
        }
    }

    /// It gets a new id, under which nothing was sent.
    pub(super) fn forget(&mut self) {
        (self.call, self.was_sent) = (None, false);
        self.may_run.clear();
        if let State::Lost(lost) = &mut self.state {
            lost.is_gone = true;
        }
    }

    /// The arrival that a server has returned for a level.
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
