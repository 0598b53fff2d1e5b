//! The remote side of a lease: its possible state on the server, and the route of its next command.

use super::{
    call::{Acquires, Flight},
    time::Time,
};
use std::time::Duration;

/// The route of the next command for some units. One script may name all of the units, because they are in one slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Route {
    pub(super) slot: u16,
    /// The server for the next command, if the slot is moving to that server.
    pub(super) redirect: Option<usize>,
    /// True if a separate command must name the units, because a command that named others too has failed with an error
    /// of a key (rule 16).
    pub(super) is_alone: bool,
}

/// The possible state of a lease on its server, under its current id.
#[derive(Debug, Default)]
pub(super) struct Remote {
    /// The acquires that were sent. Some of them may still run.
    pub(super) acquires: Acquires,
    /// The number of acquires that may have run. 0 once a refusal proves that the server has nothing of the lease.
    runs: usize,
    /// The time by which calls without an answer may prolong the lease. The answer to a later refresh does not reset
    /// it.
    unanswered: Duration,
    /// How long the last acquire or refresh lasts on the server.
    length: Duration,
    /// The time until which the server may have the lease, after all that was sent.
    may_exist_until: Time,
}

impl Remote {
    /// True if the server may have the lease now or later. The lease may have expired there, which this does not
    /// consider.
    pub(super) fn may_exist(&self) -> bool {
        self.runs > 0
    }

    /// The number of acquires that may have run.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// True if an acquire was sent under this id, and no refusal has proved since that the server has nothing.
    pub(super) fn was_sent(&self) -> bool {
        !self.length.is_zero()
    }

    /// How long the last acquire or refresh lasts on the server.
    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// The time until which the server may have the lease.
    pub(super) fn may_exist_until(&self) -> Time {
        self.may_exist_until
    }

    /// Notes that an acquire is sent.
    pub(super) fn note_acquire(&mut self, flight: &Flight, length: Duration) {
        self.runs += 1;
        self.acquires.note_sent(flight);
        self.length = length;
        self.may_exist_until = self.may_exist_until.max(flight.deadline + length);
    }

    /// Notes that a refresh is sent. It may arrive late and still prolong the lease, which earlier calls have made last
    /// until then.
    pub(super) fn note_refresh(&mut self, flight: &Flight, length: Duration) {
        self.length = length;
        self.may_exist_until = self.may_exist_until.max(flight.deadline) + length;
    }

    /// Notes an answered refresh. Each call without an answer may still run while the lease lasts, and then prolong it
    /// once.
    pub(super) fn note_refreshed(&mut self, now: Time) {
        self.may_exist_until = now + self.length + self.unanswered;
    }

    /// Notes that the last call has no answer and may have run.
    pub(super) fn note_unanswered(&mut self) {
        self.unanswered += self.length;
    }

    /// Notes that an acquire has not run and never will.
    pub(super) fn note_not_run(&mut self) {
        self.runs -= 1;
    }

    /// Notes that an acquire from `sent` was refused.
    pub(super) fn note_refused(&mut self, sent: Time) {
        if self.acquires.proves_absence(sent) {
            *self = Self::default();
        }
    }
}
