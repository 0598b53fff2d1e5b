//! One runtime's link to a server. It survives reconnects.

use super::{
    call::Flight,
    queues::{SendQueue, SendQueues},
    time::Time,
};

/// The most calls in flight if no refreshes, urgent releases, gathered claims or gathered polls wait. Claims have
/// gathered once they fill a call ([`MOST_CLAIMS`]), or once at least as many wait as acquires are in flight. Polls
/// have gathered once they fill a call. A runtime with this many calls in flight is busy (rule 19).
pub(super) const FEW_CALLS: usize = 4;

/// The most calls in flight if urgent releases wait, but no refreshes, gathered claims or gathered polls.
pub(super) const MORE_CALLS: usize = 8;

/// The most calls in flight in all other cases.
const MOST_CALLS: usize = 16;

/// A call leaves only while the calls in flight have fewer units than this. A server runs all commands that have
/// arrived over a connection in one go, while its other clients wait.
const MOST_UNITS: usize = 12_000;

/// The most claims of one call, to bound how long one script blocks the server.
pub(super) const MOST_CLAIMS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// The number of times that it was established.
    pub(super) generation: u64,
    pub(super) is_connected: bool,
    /// The leases that wait to be sent over it.
    pub(super) queues: SendQueues,
    /// The time at which a call with acquires was last sent or completed.
    last_acquires: Time,
    /// The same for calls without acquires. It is separate, because such calls do not prove that the tasks of claims
    /// run.
    last_others: Time,
    /// The number of calls without an answer.
    pub(super) in_flight: usize,
    /// The number of acquires in these calls.
    pub(super) acquires_in_flight: usize,
    /// The number of units in these calls.
    pub(super) units: usize,
    /// The number of calls in flight that [may stall](Flight::may_stall).
    pub(super) may_stall: usize,
}

impl ConnectionState {
    pub(super) fn connect(&mut self) {
        (self.is_connected, self.generation) = (true, self.generation + 1);
    }

    /// The thread sends another call while fewer calls than this are in flight; see [`can_send`](Self::can_send) for
    /// claims. A late refresh loses a permit, and a waiter whose poll is late counts as dead.
    pub(super) fn most_calls_of_thread(&self, has_urgent_releases: bool) -> usize {
        let have_polls_gathered = self.queues.len(SendQueue::Polls) >= MOST_CLAIMS;
        if have_polls_gathered || !self.queues.is_empty(SendQueue::Refreshes) {
            MOST_CALLS
        } else if has_urgent_releases {
            MORE_CALLS
        } else {
            FEW_CALLS
        }
    }

    /// True if another call may leave: while fewer than `most` are in flight, or once claims have gathered. So an idle
    /// connection delays no claim, a claim waits for part of a round trip at most, and under load calls are few and
    /// large.
    pub(super) fn can_send(&self, most: usize) -> bool {
        let waiting = self.queues.len(SendQueue::Claims);
        let have_gathered = waiting > 0 && waiting >= self.acquires_in_flight.min(MOST_CLAIMS);
        let most = if have_gathered { MOST_CALLS } else { most };
        let has_room = self.units < MOST_UNITS;
        has_room && self.is_connected && self.in_flight < most
    }

    fn note_activity(&mut self, now: Time, flight: &Flight) {
        match flight.acquires {
            0 => self.last_others = now,
            _ => self.last_acquires = now,
        }
    }

    /// The last time at which the runtime showed that it runs. If claims wait, it sent or completed a call with
    /// acquires then. If a call without acquires is in flight and may stall, it sent or completed such a call then. If
    /// both hold, the earlier time counts. It may be long before the work was queued. `None` if neither holds.
    pub(super) fn last_activity(&self) -> Option<Time> {
        let waits = !self.queues.is_empty(SendQueue::Claims);
        let claims = waits.then_some(self.last_acquires);
        let releases = (self.may_stall > 0).then_some(self.last_others);
        claims.into_iter().chain(releases).min()
    }

    /// Notes that a call leaves.
    pub(super) fn send(&mut self, flight: &Flight) {
        self.note_activity(flight.sent, flight);
        self.in_flight += 1;
        self.may_stall += usize::from(flight.may_stall);
        self.acquires_in_flight += flight.acquires;
        self.units += flight.units;
    }

    /// Notes that a call is over.
    pub(super) fn complete(&mut self, now: Time, flight: &Flight) {
        self.note_activity(now, flight);
        self.in_flight -= 1;
        self.may_stall -= usize::from(flight.may_stall);
        self.acquires_in_flight -= flight.acquires;
        self.units -= flight.units;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::{LeaseRef, PermitId};

    /// Over a slow network, few calls would carry fewer polls than waiters need to stay alive.
    #[test]
    fn gathered_polls_raise_the_most_calls_and_fewer_polls_do_not() {
        let mut connection = ConnectionState::default();
        for waiter in 1..MOST_CLAIMS {
            let at = LeaseRef(PermitId::default(), waiter);
            connection.queues.push(SendQueue::Polls, at, Time::ZERO);
        }
        assert_eq!(connection.most_calls_of_thread(false), FEW_CALLS);
        let at = LeaseRef(PermitId::default(), 0);
        connection.queues.push(SendQueue::Polls, at, Time::ZERO);
        assert_eq!(connection.most_calls_of_thread(false), MOST_CALLS);
    }
}
