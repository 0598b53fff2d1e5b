//! A lease: a run of neighbouring levels of a claim that one script may name. It is acquired and refreshed as a whole.

use super::{
    call::Flight,
    id::CallId,
    remote::{Remote, Route},
    time::{FOREVER, Time},
};
use crate::verbs::Queued;
use std::{mem, ops::Range, time::Duration};

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
    Ahead,
    /// It should be acquired.
    Wanted,
    /// It waits in the queue of one of its levels, by the level's number in the permit. The time is that of the last
    /// answered poll, when it was sent.
    Queued(Queued, Time),
    /// It is held until this time.
    Held(Time),
    /// The permit is granted, but no server is known to have the lease. It should be acquired again.
    Missing(Holder),
}

/// What the holder of a permit knows while a server lacks one of the permit's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// It relies on the lease until this time.
    Believes(Time),
    /// It goes on while the server is unavailable.
    Degraded,
    /// It was notified of the loss.
    Notified,
}

/// When the next call of a lease is sent.
#[derive(Debug)]
pub(super) enum Dispatch {
    /// It is due at this time, if the state of the lease needs a call.
    Scheduled(Time),
    /// It waits in this queue of this server.
    Queued(Queue, usize),
    /// A call is in flight. The next one is scheduled after its answer (rule 9).
    InFlight(InFlight),
}

impl Default for Dispatch {
    fn default() -> Self {
        Self::Scheduled(Time::ZERO)
    }
}

/// The acquire or refresh of a lease that has no answer yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    call: CallId,
    /// True if the lease must poll at once after the answer `Queued`: a message has arrived since, or the limits have changed.
    pub(super) was_notified: bool,
    /// True if the lease has given up units since. A refresh may not find them all, which is no loss.
    pub(super) has_shrunk: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lease {
    pub(super) route: Route,
    /// The numbers of its levels in the permit.
    pub(super) levels: Range<usize>,
    pub(super) state: State,
    pub(super) dispatch: Dispatch,
    pub(super) remote: Remote,
}

impl Lease {
    pub(super) fn new(slot: u16, levels: Range<usize>) -> Self {
        Self {
            route: Route {
                slot,
                ..Route::default()
            },
            levels,
            ..Self::default()
        }
    }

    /// The queue for its next call. `None` if its state needs no call.
    pub(super) fn queue(&self) -> Option<Queue> {
        match &self.state {
            State::Ahead => None,
            State::Held(_) => Some(Queue::Refreshes),
            State::Queued(..) => Some(Queue::Polls),
            State::Wanted | State::Missing(_) => Some(Queue::Claims),
        }
    }

    // Its calls.

    /// Schedules its next call, unless one is in flight, or waits in the right queue already.
    pub(super) fn schedule(&mut self, then: Time) {
        let waits =
            matches!(self.dispatch, Dispatch::Queued(queue, _) if Some(queue) == self.queue());
        if !waits {
            self.schedule_anew(then);
        }
    }

    /// Schedules its next call, unless one is in flight. An entry in a queue no longer counts.
    pub(super) fn schedule_anew(&mut self, then: Time) {
        if !matches!(self.dispatch, Dispatch::InFlight(_)) {
            self.dispatch = Dispatch::Scheduled(then);
        }
    }

    /// True if its next call is scheduled for a time after this one.
    pub(super) fn is_scheduled_after(&self, now: Time) -> bool {
        matches!(self.dispatch, Dispatch::Scheduled(then) if then > now)
    }

    /// True if it waits in this queue of this server. An entry from an earlier state does not count, such as a poll of a
    /// lease that a message has granted.
    pub(super) fn waits_in(&self, queue: Queue, server: usize) -> bool {
        let is_there =
            matches!(self.dispatch, Dispatch::Queued(own, at) if (own, at) == (queue, server));
        is_there && self.queue() == Some(queue)
    }

    /// The acquire or refresh in flight.
    pub(super) fn call(&self) -> Option<CallId> {
        match &self.dispatch {
            Dispatch::InFlight(flight) => Some(flight.call),
            _ => None,
        }
    }

    fn in_flight(&mut self) -> Option<&mut InFlight> {
        match &mut self.dispatch {
            Dispatch::InFlight(flight) => Some(flight),
            _ => None,
        }
    }

    /// Lets it poll once the answer on its way reports that it is queued.
    pub(super) fn notify(&mut self) {
        if let Some(flight) = self.in_flight() {
            flight.was_notified = true;
        }
    }

    /// Notes that it gives up units and goes on.
    pub(super) fn shrink(&mut self) {
        if let Some(flight) = self.in_flight() {
            flight.has_shrunk = true;
        }
    }

    /// Notes that a call with an acquire or a refresh of it is sent.
    pub(super) fn send(&mut self, flight: &Flight, acquires: bool, length: Duration) {
        self.dispatch = Dispatch::InFlight(InFlight {
            call: flight.id,
            was_notified: false,
            has_shrunk: false,
        });
        match acquires {
            true => self.remote.acquire(flight, length),
            false => self.remote.refresh(flight, length),
        }
    }

    /// Notes that a call is over. `None` if it does not wait for this call, because it has a new id.
    pub(super) fn land(&mut self, call: CallId) -> Option<InFlight> {
        let flight = *self.in_flight().filter(|flight| flight.call == call)?;
        self.dispatch = Dispatch::default();
        Some(flight)
    }

    /// Forgets all calls, because it gets a new id, under which none was sent.
    pub(super) fn forget(&mut self) {
        self.remote.forget();
        if self.call().is_some() {
            self.dispatch = Dispatch::default();
        }
    }

    /// Its earliest timer.
    pub(super) fn timer(&self) -> Option<Time> {
        let send = match self.dispatch {
            Dispatch::Scheduled(at) => self.queue().map(|_| at),
            _ => None,
        };
        [send, self.end()].into_iter().flatten().min()
    }

    // Its state.

    /// The time at which its holder is notified of the loss.
    pub(super) fn end(&self) -> Option<Time> {
        match self.state {
            State::Held(end) | State::Missing(Holder::Believes(end)) => Some(end),
            State::Missing(Holder::Degraded) => Some(FOREVER),
            _ => None,
        }
    }

    /// True if its holder goes on without its server.
    pub(super) fn is_degraded(&self) -> bool {
        matches!(self.state, State::Missing(Holder::Degraded))
    }

    /// True if it is lost and should be acquired again.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.state, State::Missing(_))
    }

    /// The number of the level in whose queue it waits.
    pub(super) fn queued_at(&self) -> Option<usize> {
        match &self.state {
            State::Queued(queued, _) => Some(queued.level),
            _ => None,
        }
    }

    /// True if its holder may rely on it.
    pub(super) fn is_held(&self) -> bool {
        self.end().is_some()
    }

    /// Notes that it is held at least until `end`.
    pub(super) fn hold(&mut self, end: Time) {
        let before = match self.state {
            State::Held(before) => before,
            _ => end,
        };
        self.state = State::Held(end.max(before));
        self.route.is_alone = false;
    }

    /// Marks it as missing. Returns its state before.
    pub(super) fn miss(&mut self, holder: Holder) -> State {
        mem::replace(&mut self.state, State::Missing(holder))
    }

    /// The arrival that a server has returned for a level, or 0.
    pub(super) fn arrival_at(&self, level: usize) -> u64 {
        match &self.state {
            State::Queued(queued, _) if queued.level == level => queued.arrival,
            _ => 0,
        }
    }
}
