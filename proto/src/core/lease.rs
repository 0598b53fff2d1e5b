//! A lease: a run of neighbouring levels of a claim that one script may name. It is acquired and refreshed as a whole.

use super::{
    call::{Acquires, Flight},
    id::CallId,
    time::{FOREVER, Time},
};
use crate::verbs::Queued;
use std::{ops::Range, time::Duration};

/// The queue in which a lease waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Refreshes,
    Polls,
    Claims,
}

#[derive(Debug, Default)]
pub(super) enum State {
    /// It waits for the narrower lease before it.
    #[default]
    Idle,
    /// It should be acquired.
    Wanted,
    /// It waits in the queue of one of its levels, by the level's number in the permit. The time is that of the last
    /// answered poll, when it was sent.
    Queued(Queued, Time),
    /// It is held until this time.
    Held(Time),
    /// The permit is granted, but no server is known to have the lease. It should be acquired again.
    Lost(Lost),
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
    /// The queue and the server in which it was put. `None` once it was sent.
    pub(super) waits_in: Option<(Queue, usize)>,
    /// True if a separate command must name it, because a command for several leases has failed with an error of a key.
    pub(super) is_alone: bool,
    /// True if it must poll at once when the acquire in flight is answered with `Queued`: a message has arrived, or the limits
    /// have changed.
    pub(super) was_notified: bool,
    /// The acquire or refresh in flight.
    pub(super) call: Option<CallId>,
    /// The call in flight when the lease last gave up units. It may not find them all, which is no loss.
    pub(super) outdated: Option<CallId>,
    /// True once an acquire under the current id has been sent.
    pub(super) was_sent: bool,
    /// The number of unanswered calls under the current id that may have run. An answer does not reset it.
    pub(super) unanswered: u32,
    /// The time that the last acquire or refresh lasts on the server.
    pub(super) length: Duration,
    /// The time until which the server may have the lease, after all that was sent.
    pub(super) lasts: Time,
    pub(super) acquires: Acquires,
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

    /// The time at which its holder is notified of the loss.
    pub(super) fn end(&self) -> Option<Time> {
        match &self.state {
            State::Held(end) => Some(*end),
            State::Lost(lost) => lost.end,
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
        self.was_sent && (!is_gone || self.acquires.run_until() > now)
    }

    /// True if its holder may rely on it.
    pub(super) fn is_held(&self) -> bool {
        match &self.state {
            State::Held(_) => true,
            State::Lost(lost) => lost.end.is_some(),
            _ => false,
        }
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
            self.acquires.send(flight);
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

    /// Forgets all calls, because the lease gets a new id, under which none was sent.
    pub(super) fn forget(&mut self) {
        (self.call, self.was_sent, self.unanswered) = (None, false, 0);
        self.acquires.clear();
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
}
