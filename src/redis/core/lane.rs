//! One runtime's connection to a server.

use super::{call::Flight, id::At, time::Time};
use std::collections::VecDeque;

/// So many may be in flight when the thread has one that no caller waits for.
pub(super) const FEW: usize = 4;

/// So many may be in flight when another one has releases that are due.
pub(super) const MORE: usize = 8;

/// The most calls in flight.
pub(super) const MOST: usize = 16;

/// Another call may leave while those in flight have fewer units: a server runs all that has arrived over a connection in
/// one go, while its other clients wait.
const MOST_UNITS: usize = 12_000;

/// The most claims of one call, to bound how long one script blocks the server.
pub(super) const MOST_CLAIMS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Which of the connections it is; 0: there was none yet.
    pub(super) generation: u64,
    pub(super) is_connected: bool,
    /// The claims that wait to be sent.
    pub(super) claims: VecDeque<At>,
    /// When a call with claims last left, or was over.
    moved: Time,
    /// The same of a call without claims. It proves nothing about the tasks of claims.
    released: Time,
    /// How many calls have no answer yet.
    pub(super) in_flight: usize,
    /// How many claims and units these have.
    pub(super) claimed: usize,
    pub(super) units: usize,
    /// The number of calls in flight that [may stall](Flight::may_stall).
    pub(super) may_stall: usize,
}

impl Lane {
    pub(super) fn connect(&mut self) {
        (self.is_connected, self.generation) = (true, self.generation + 1);
    }

    /// Whether a call may leave while fewer than `most` are in flight. Claims gather until as many wait as are in flight. So
    /// an idle lane delays none, each waits for a part of a round trip at most, and under load calls are few and large.
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

    /// Since when claims or releases wait for the tasks of the runtime.
    pub(super) fn stalls_since(&self) -> Option<Time> {
        let claims = (!self.claims.is_empty()).then_some(self.moved);
        let releases = (self.may_stall > 0).then_some(self.released);
        claims.into_iter().chain(releases).min()
    }

    /// A call leaves. Where the connection does not keep the order, what follows counts as sent over another one.
    pub(super) fn send(&mut self, flight: &Flight, keeps_order: bool) {
        self.note_move(flight.sent, flight);
        self.in_flight += 1;
        self.may_stall += usize::from(flight.may_stall);
        self.claimed += flight.claims;
        self.units += flight.units;
        self.generation += u64::from(!keeps_order);
    }

    /// A call is over.
    pub(super) fn land(&mut self, now: Time, flight: &Flight) {
        self.note_move(now, flight);
        self.in_flight -= 1;
        self.may_stall -= usize::from(flight.may_stall);
        self.claimed -= flight.claims;
        self.units -= flight.units;
    }
}
