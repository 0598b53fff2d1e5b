//! A lease: a run of neighbouring levels of a claim that one script may name. It is acquired and refreshed as a whole.
//!
//! The table has the next state and the [`Outcome`] for the permit, by event and state. A test compares it with
//! [`Lease::on`]. The last three states are those of [`LeaseState::Missing`]. `-`: nothing changes. *calls again*: the
//! event concerns an earlier state, and the next call is due at once. The result of a loss depends on its [`OnLoss`],
//! which follows a colon.
//!
//! | event | NotStarted | Wanted | Queued | Held | Unaware | Degraded | Notified |
//! |---|---|---|---|---|---|---|---|
//! | Turn | Wanted | - | Wanted | Wanted | Wanted | Wanted | Wanted |
//! | GivenBack | - | NotStarted | NotStarted | NotStarted | NotStarted | NotStarted | NotStarted |
//! | Admitted | Degraded, IsDegraded | Degraded, IsDegraded | Degraded, IsDegraded | Degraded, IsDegraded | Degraded, IsDegraded | Degraded, IsDegraded | Degraded, IsDegraded |
//! | Granted | - | Held, Advances | Held, Advances | Held, IsHeld | Held, Returns(false) | Held, Returns(true) | Held, Returns(true) |
//! | Found | - | calls again | calls again | Held, IsHeld | calls again | calls again | calls again |
//! | Queued | - | Queued, Waits | Queued, Waits | calls again | calls again | calls again | calls again |
//! | Refused: FallBack, NotifyAtOnce, Notify, KeepAtEnd | - | Wanted, IsRefused | Queued, IsRefused | calls again | Notified, IsMissing | Degraded, IsMissing | Notified, IsMissing |
//! | Refused: Keep | - | Wanted, IsRefused | Queued, IsRefused | calls again | Degraded, IsDegraded | Degraded, IsMissing | Degraded, IsDegraded |
//! | NotFound: FallBack | - | calls again | calls again | Wanted, FallsBack | calls again | calls again | calls again |
//! | NotFound: NotifyAtOnce | - | calls again | calls again | Notified, IsMissing | calls again | calls again | calls again |
//! | NotFound: Notify, KeepAtEnd | - | calls again | calls again | Unaware, IsMissing | calls again | calls again | calls again |
//! | NotFound: Keep | - | calls again | calls again | Degraded, IsDegraded | calls again | calls again | calls again |
//! | Ended: FallBack | - | calls again | calls again | Wanted, FallsBack | Notified, IsMissing | Degraded, IsMissing | Notified, IsMissing |
//! | Ended: NotifyAtOnce, Notify | - | calls again | calls again | Notified, IsMissing | Notified, IsMissing | Degraded, IsMissing | Notified, IsMissing |
//! | Ended: KeepAtEnd | - | calls again | calls again | Degraded, IsDegraded | Notified, IsMissing | Degraded, IsMissing | Notified, IsMissing |
//! | Ended: Keep | - | calls again | calls again | Degraded, IsDegraded | Degraded, IsDegraded | Degraded, IsMissing | Degraded, IsDegraded |

use super::{
    call::Flight,
    id::CallId,
    queues::SendQueue,
    remote::{Remote, Route},
    time::Time,
};
use crate::verbs::Queued;
use std::{mem, ops::Range, time::Duration};

/// The state of a lease. Only [`Lease::on`] changes it.
#[derive(Debug, Default)]
pub(super) enum LeaseState {
    /// Its turn comes once the narrower leases are held.
    #[default]
    NotStarted,
    /// It should be acquired.
    Wanted,
    /// It waits in the queue of one of its levels, by its number in the permit. The last answered acquire was sent at
    /// this time.
    Queued(Queued, Time),
    /// It is held until this time.
    Held(Time),
    /// The permit is granted, but no server is known to have the lease. It should be acquired again.
    Missing(Holder),
}

/// The knowledge of a permit's holder while a server lacks one of the permit's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// It relies on the lease until this time.
    Unaware(Time),
    /// It goes on while the server is unavailable.
    Degraded,
    /// It was notified of the loss.
    Notified,
}

/// An event of a lease: an answer, a message, a passed time, or a decision about its claim.
#[derive(Debug)]
pub(super) enum LeaseEvent {
    /// The narrower leases of its claim are held, or the claim falls back to this one.
    Turn,
    /// The claim gives it back, until its turn comes again.
    GivenBack,
    /// An acquire was granted. The lease is held until this time.
    Granted(Time),
    /// A refresh has found it. It is held until this time.
    Found(Time),
    /// An acquire that was sent at this time has queued it.
    Queued(Queued, Time),
    /// An acquire was refused, or an error of a key prevents its return.
    Refused(OnLoss),
    /// A refresh has not found it.
    NotFound(OnLoss),
    /// The end that its holder knows has passed.
    Ended(OnLoss),
    /// The policy has admitted its claim without its server.
    Admitted,
}

/// The consequence for a permit that loses a lease now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnLoss {
    /// The permit is not granted yet: the claim acquires the lease again.
    FallBack,
    /// The permit is strict: its holder is notified at once, because another holder may have had the units in between.
    NotifyAtOnce,
    /// Its holder is notified at the end that it knows.
    Notify,
    /// The server works. If the end of a held lease passes without an answer, the permit goes on as the policy allows.
    /// A lease that a refresh has not found is lost at that end.
    KeepAtEnd,
    /// The server is not well: the permit goes on without it, as the policy allows.
    Keep,
}

/// The consequence of an event for the permit of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: an answer that came too late, for example.
    Nothing,
    /// The next call is due at once.
    CallsAgain,
    /// The claim goes on with its next lease, or is granted.
    Advances,
    /// The claim waits in a queue.
    Waits,
    /// The claim is refused.
    IsRefused,
    /// The claim falls back to this lease.
    FallsBack,
    /// The lease stays held.
    IsHeld,
    /// The lease is held again. True if its holder knew that it was not.
    Returns(bool),
    /// The lease is missing. Its holder may have to learn of that.
    IsMissing,
    /// The lease is missing, and from now on its holder goes on without the server.
    IsDegraded,
}

/// When the next call of a lease is sent.
#[derive(Debug)]
enum Dispatch {
    /// It is due at this time, if the state of the lease needs a call.
    Scheduled(Time),
    /// It waits to be sent, in this queue of this server.
    Ready(SendQueue, usize),
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
    /// True if the lease must poll at once after the answer `Queued`: a message has arrived since, or the limits have
    /// changed.
    pub(super) was_notified: bool,
    /// True if the lease has given up units since. A refresh may not find them all, which is no loss.
    pub(super) has_shrunk: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lease {
    pub(super) route: Route,
    /// The numbers of its levels in the permit.
    pub(super) levels: Range<usize>,
    pub(super) state: LeaseState,
    dispatch: Dispatch,
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
    pub(super) fn queue(&self) -> Option<SendQueue> {
        match &self.state {
            LeaseState::NotStarted => None,
            LeaseState::Held(_) => Some(SendQueue::Refreshes),
            LeaseState::Queued(..) => Some(SendQueue::Polls),
            LeaseState::Wanted | LeaseState::Missing(_) => Some(SendQueue::Claims),
        }
    }

    // Its calls.

    /// The queue for its next call, if the call is due and not queued yet.
    pub(super) fn due_queue(&self, now: Time) -> Option<SendQueue> {
        let is_due = matches!(self.dispatch, Dispatch::Scheduled(then) if then <= now);
        self.queue().filter(|_| is_due)
    }

    /// Notes that it waits in this queue of this server.
    pub(super) fn enqueue(&mut self, queue: SendQueue, server: usize) {
        self.dispatch = Dispatch::Ready(queue, server);
    }

    /// If it has a redirect, or waits for another server than this one: removes the redirect, takes it out of its
    /// queue, and returns true.
    pub(super) fn leave_other_than(&mut self, server: usize, now: Time) -> bool {
        let waits_elsewhere = matches!(self.dispatch, Dispatch::Ready(_, other) if other != server);
        let leaves = self.route.redirect.take().is_some() || waits_elsewhere;
        if leaves && matches!(self.dispatch, Dispatch::Ready(..)) {
            self.reschedule(now);
        }
        leaves
    }

    /// Schedules its next call, unless one is in flight, or waits in the right queue already.
    pub(super) fn schedule(&mut self, then: Time) {
        let waits =
            matches!(self.dispatch, Dispatch::Ready(queue, _) if Some(queue) == self.queue());
        if !waits {
            self.reschedule(then);
        }
    }

    /// Schedules its next call, unless one is in flight. An entry in a queue no longer counts.
    pub(super) fn reschedule(&mut self, then: Time) {
        if !matches!(self.dispatch, Dispatch::InFlight(_)) {
            self.dispatch = Dispatch::Scheduled(then);
        }
    }

    /// True if its next call is scheduled for a time after this one.
    pub(super) fn is_scheduled_after(&self, now: Time) -> bool {
        matches!(self.dispatch, Dispatch::Scheduled(then) if then > now)
    }

    /// True if it waits in this queue of this server. An entry from an earlier state does not count, such as a poll of
    /// a lease that a message has granted.
    pub(super) fn waits_in(&self, queue: SendQueue, server: usize) -> bool {
        let is_there = matches!(self.dispatch, Dispatch::Ready(in_queue, at) if (in_queue, at) == (queue, server));
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

    /// Makes it poll at once if the answer in flight is [`LeaseEvent::Queued`].
    pub(super) fn notify(&mut self) {
        if let Some(flight) = self.in_flight() {
            flight.was_notified = true;
        }
    }

    /// Notes that it gives up units and goes on.
    pub(super) fn note_shrink(&mut self) {
        if let Some(flight) = self.in_flight() {
            flight.has_shrunk = true;
        }
    }

    /// Notes that a call with an acquire of it is sent. The lease lasts for `length` on the server.
    pub(super) fn note_acquire(&mut self, flight: &Flight, length: Duration) {
        self.send(flight.id);
        self.remote.note_acquire(flight, length);
    }

    /// Notes that a call with a refresh of it is sent.
    pub(super) fn note_refresh(&mut self, flight: &Flight, length: Duration) {
        self.send(flight.id);
        self.remote.note_refresh(flight, length);
    }

    fn send(&mut self, call: CallId) {
        self.dispatch = Dispatch::InFlight(InFlight {
            call,
            was_notified: false,
            has_shrunk: false,
        });
    }

    /// Notes that a call is over. `None` if the lease does not wait for this call, because it has a new id.
    pub(super) fn complete(&mut self, call: CallId) -> Option<InFlight> {
        let flight = *self.in_flight().filter(|flight| flight.call == call)?;
        self.dispatch = Dispatch::default();
        Some(flight)
    }

    /// Forgets all calls, because it gets a new id, under which none was sent.
    pub(super) fn forget_calls(&mut self) {
        self.remote = Remote::default();
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
        [send, self.expiry()].into_iter().flatten().min()
    }

    // Its state.

    /// Changes its state. A held lease may share a command again (rule 16).
    pub(super) fn on(&mut self, event: LeaseEvent) -> Outcome {
        let (state, outcome) = match (mem::take(&mut self.state), event) {
            (_, LeaseEvent::Turn) => (LeaseState::Wanted, Outcome::Nothing),
            (_, LeaseEvent::GivenBack) => (LeaseState::NotStarted, Outcome::Nothing),
            (_, LeaseEvent::Admitted) => {
                (LeaseState::Missing(Holder::Degraded), Outcome::IsDegraded)
            }
            (LeaseState::NotStarted, _) => (LeaseState::NotStarted, Outcome::Nothing),

            (LeaseState::Wanted | LeaseState::Queued(..), LeaseEvent::Granted(end)) => {
                (LeaseState::Held(end), Outcome::Advances)
            }
            (LeaseState::Wanted | LeaseState::Queued(..), LeaseEvent::Queued(queued, sent)) => {
                (LeaseState::Queued(queued, sent), Outcome::Waits)
            }
            (state @ (LeaseState::Wanted | LeaseState::Queued(..)), LeaseEvent::Refused(_)) => {
                (state, Outcome::IsRefused)
            }

            (LeaseState::Held(before), LeaseEvent::Granted(end) | LeaseEvent::Found(end)) => {
                (LeaseState::Held(end.max(before)), Outcome::IsHeld)
            }
            (LeaseState::Held(end), LeaseEvent::NotFound(on_loss)) => match on_loss {
                OnLoss::FallBack => (LeaseState::Wanted, Outcome::FallsBack),
                OnLoss::NotifyAtOnce => (LeaseState::Missing(Holder::Notified), Outcome::IsMissing),
                OnLoss::Notify | OnLoss::KeepAtEnd => (
                    LeaseState::Missing(Holder::Unaware(end)),
                    Outcome::IsMissing,
                ),
                OnLoss::Keep => (LeaseState::Missing(Holder::Degraded), Outcome::IsDegraded),
            },
            (LeaseState::Held(_), LeaseEvent::Ended(on_loss)) => match on_loss {
                OnLoss::FallBack => (LeaseState::Wanted, Outcome::FallsBack),
                OnLoss::NotifyAtOnce | OnLoss::Notify => {
                    (LeaseState::Missing(Holder::Notified), Outcome::IsMissing)
                }
                OnLoss::KeepAtEnd | OnLoss::Keep => {
                    (LeaseState::Missing(Holder::Degraded), Outcome::IsDegraded)
                }
            },

            (LeaseState::Missing(holder), LeaseEvent::Granted(end)) => {
                let knew = !matches!(holder, Holder::Unaware(_));
                (LeaseState::Held(end), Outcome::Returns(knew))
            }
            (
                LeaseState::Missing(holder),
                LeaseEvent::Refused(on_loss) | LeaseEvent::Ended(on_loss),
            ) => match (holder, on_loss) {
                (Holder::Degraded, _) => (LeaseState::Missing(holder), Outcome::IsMissing),
                (_, OnLoss::Keep) => (LeaseState::Missing(Holder::Degraded), Outcome::IsDegraded),
                (Holder::Notified, _) => (LeaseState::Missing(holder), Outcome::IsMissing),
                (Holder::Unaware(_), _) => {
                    (LeaseState::Missing(Holder::Notified), Outcome::IsMissing)
                }
            },

            // The answer concerns an earlier state.
            (state, _) => (state, Outcome::CallsAgain),
        };
        self.state = state;
        if self.is_held() {
            self.route.is_alone = false;
        }
        outcome
    }

    /// The time until which its holder may rely on it. `None` if the holder must not, or goes on without its server.
    pub(super) fn expiry(&self) -> Option<Time> {
        match self.state {
            LeaseState::Held(end) | LeaseState::Missing(Holder::Unaware(end)) => Some(end),
            _ => None,
        }
    }

    /// True if its server has it, as far as is known.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, LeaseState::Held(_))
    }

    /// True if its holder goes on without its server.
    pub(super) fn is_degraded(&self) -> bool {
        matches!(self.state, LeaseState::Missing(Holder::Degraded))
    }

    /// True if it is lost and should be acquired again.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.state, LeaseState::Missing(_))
    }

    /// The number of the level in whose queue it waits.
    pub(super) fn queued_at(&self) -> Option<usize> {
        match &self.state {
            LeaseState::Queued(queued, _) => Some(queued.level),
            _ => None,
        }
    }

    /// True if its holder relies on it, whatever its server has.
    pub(super) fn is_relied_on(&self) -> bool {
        self.expiry().is_some() || self.is_degraded()
    }

    /// The arrival that a server has returned for a level, or 0.
    pub(super) fn arrival_at(&self, level: usize) -> u64 {
        match &self.state {
            LeaseState::Queued(queued, _) if queued.level == level => queued.arrival,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1);

    type EventOf = fn() -> LeaseEvent;

    const ON_LOSS: [OnLoss; 5] = [
        OnLoss::FallBack,
        OnLoss::NotifyAtOnce,
        OnLoss::Notify,
        OnLoss::KeepAtEnd,
        OnLoss::Keep,
    ];

    fn queued() -> Queued {
        Queued {
            level: 0,
            arrival: 0,
            last_token: 0,
            recheck: None,
            pause: None,
            earliest: None,
        }
    }

    fn states() -> Vec<LeaseState> {
        vec![
            LeaseState::NotStarted,
            LeaseState::Wanted,
            LeaseState::Queued(queued(), NOW),
            LeaseState::Held(NOW),
            LeaseState::Missing(Holder::Unaware(NOW)),
            LeaseState::Missing(Holder::Degraded),
            LeaseState::Missing(Holder::Notified),
        ]
    }

    fn name_of(state: &LeaseState) -> &'static str {
        match state {
            LeaseState::NotStarted => "NotStarted",
            LeaseState::Wanted => "Wanted",
            LeaseState::Queued(..) => "Queued",
            LeaseState::Held(_) => "Held",
            LeaseState::Missing(Holder::Unaware(_)) => "Unaware",
            LeaseState::Missing(Holder::Degraded) => "Degraded",
            LeaseState::Missing(Holder::Notified) => "Notified",
        }
    }

    /// The cells of an event, by state.
    fn row(event: impl Fn() -> LeaseEvent) -> String {
        let cell = |state: LeaseState| {
            let before = name_of(&state);
            let mut lease = Lease {
                state,
                ..Lease::default()
            };
            let outcome = lease.on(event());
            match (name_of(&lease.state), outcome) {
                (after, Outcome::Nothing) if after == before => "-".to_owned(),
                (after, Outcome::CallsAgain) if after == before => "calls again".to_owned(),
                (after, Outcome::Nothing) => after.to_owned(),
                (after, outcome) => format!("{after}, {outcome:?}"),
            }
        };
        let cells: Vec<_> = states().into_iter().map(cell).collect();
        cells.join(" | ")
    }

    /// The rows of a loss: one for all that have the same result.
    fn rows_of_loss(name: &str, event: fn(OnLoss) -> LeaseEvent) -> Vec<String> {
        let rows = ON_LOSS.map(|on_loss| (row(|| event(on_loss)), on_loss));
        let same = rows.chunk_by(|(one, _), (next, _)| one == next);
        let line = |same: &[(String, OnLoss)]| {
            let names = same.iter().map(|(_, on_loss)| format!("{on_loss:?}"));
            let names = names.collect::<Vec<_>>().join(", ");
            format!("| {name}: {names} | {} |", same[0].0)
        };
        same.map(line).collect()
    }

    #[test]
    fn the_table_in_the_docs_is_that_of_the_code() {
        let names: Vec<_> = states().iter().map(name_of).collect();
        let mut table = vec![
            format!("| event | {} |", names.join(" | ")),
            format!("|{}", "---|".repeat(names.len() + 1)),
        ];
        let events: [(&str, EventOf); 6] = [
            ("Turn", || LeaseEvent::Turn),
            ("GivenBack", || LeaseEvent::GivenBack),
            ("Admitted", || LeaseEvent::Admitted),
            ("Granted", || LeaseEvent::Granted(NOW)),
            ("Found", || LeaseEvent::Found(NOW)),
            ("Queued", || LeaseEvent::Queued(queued(), NOW)),
        ];
        table.extend(events.map(|(name, event)| format!("| {name} | {} |", row(event))));
        table.extend(rows_of_loss("Refused", LeaseEvent::Refused));
        table.extend(rows_of_loss("NotFound", LeaseEvent::NotFound));
        table.extend(rows_of_loss("Ended", LeaseEvent::Ended));
        let docs = include_str!("lease.rs").lines();
        let docs: Vec<_> = docs.filter_map(|line| line.strip_prefix("//! |")).collect();
        let docs: Vec<_> = docs.iter().map(|line| format!("|{line}")).collect();
        assert_eq!(docs, table, "\n{}", table.join("\n"));
    }
}
