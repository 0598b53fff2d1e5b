//! One runtime's connection to a server.

use super::{call::Flight, id::LeaseRef, time::Time};
use std::collections::VecDeque;

/// The thread's calls without refreshes or urgent releases leave only while fewer calls than this are in flight.
pub(super) const FEW: usize = 4;

/// Calls with urgent releases, but without refreshes or gathered claims, leave only while fewer calls than this are in
/// flight.
pub(super) const MORE: usize = 8;

/// The most calls in flight.
pub(super) const MOST: usize = 16;

/// A call leaves only while the calls in flight have fewer units than this. A server runs all commands that have
/// arrived over a connection in one go, while its other clients wait.
const MOST_UNITS: usize = 12_000;

/// The most claims of one call, to bound how long one script blocks the server.
pub(super) const MOST_CLAIMS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Connection {
    /// The number of the current connection, or 0 before the first.
    pub(super) generation: u64,
    pub(super) is_connected: bool,
    /// The claims that wait to be sent.
    pub(super) claims: VecDeque<LeaseRef>,
    /// The time at which a call with claims last left, or was over.
    moved: Time,
    /// The same for calls without claims, which prove nothing about the tasks of claims.
    released: Time,
    /// The number of calls without an answer.
    pub(super) in_flight: usize,
    /// The number of claims and of units in these calls.
    pub(super) claimed: usize,
    pub(super) units: usize,
    /// The number of calls in flight that [may stall](Flight::may_stall).
    pub(super) may_stall: usize,
}

impl Connection {
    pub(super) fn connect(&mut self) {
        (self.is_connected, self.generation) = (true, self.generation + 1);
    }

    /// True if a call may leave while fewer than `most` are in flight, or if as many claims have gathered as are in
    /// flight. So an idle connection delays no claim, a claim waits for part of a round trip at most, and under load calls
    /// are few and large.
    pub(super) fn is_open(&self, most: usize) -> bool {
        let waiting = self.claims.len();
        let have_gathered = waiting > 0 && waiting >= self.claimed.min(MOST_CLAIMS);
        let most = if have_gathered { MOST } else { most };
        let is_idle = self.units < MOST_UNITS;
        is_idle && self.is_connected && self.in_flight < most
    }

    fn note_move(&mut self, now: Time, flight: &Flight) {
        match flight.claims {
            0 => self.released = now,
            _ => self.moved = now,
        }
    }

    /// The time since which claims or releases wait for the runtime's tasks.
    pub(super) fn stalls_since(&self) -> Option<Time> {
        let claims = (!self.claims.is_empty()).then_some(self.moved);
        let releases = (self.may_stall > 0).then_some(self.released);
        claims.into_iter().chain(releases).min()
    }

    /// Notes that a call leaves.
    pub(super) fn send(&mut self, flight: &Flight) {
        self.note_move(flight.sent, flight);
        self.in_flight += 1;
        self.may_stall += usize::from(flight.may_stall);
        self.claimed += flight.claims;
        self.units += flight.units;
    }

    /// Notes that a call is over.
    pub(super) fn complete(&mut self, now: Time, flight: &Flight) {
        self.note_move(now, flight);
        self.in_flight -= 1;
        self.may_stall -= usize::from(flight.may_stall);
        self.claimed -= flight.claims;
        self.units -= flight.units;
    }
}
