//! One runtime's connection to a server.

use super::id::At;
use std::collections::VecDeque;

/// So many calls in flight leave time for others to gather, and a round trip that is not idle.
const FEW: usize = 4;

/// So many may be in flight when another one has releases that are due.
const MORE: usize = 8;

/// The most calls in flight: each but the first ones is full, or refreshes leases.
const MOST: usize = 16;

/// Another call may leave while those in flight have fewer units: a server runs what has come over a connection in
/// one go, and its other clients wait meanwhile.
const MOST_UNITS: usize = 12_000;

/// What is in a hurry to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hurry {
    None,
    Releases,
    Refreshes,
}

/// The most claims of one call, to bound how long one script blocks the server.
pub(super) const MOST_CLAIMS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Which of the connections it is; 0: there was none yet.
    pub(super) generation: u64,
    pub(super) is_connected: bool,
    /// The claims that wait to be sent.
    pub(super) claims: VecDeque<At>,
    /// How many calls have no answer yet.
    pub(super) in_flight: usize,
    /// How many units these have.
    pub(super) units: usize,
}

impl Lane {
    pub(super) fn connect(&mut self) {
        (self.is_connected, self.generation) = (true, self.generation + 1);
    }

    /// A call leaves. Where the connection does not keep the order, what follows counts as sent over another one.
    pub(super) fn send(&mut self, units: usize, keeps_order: bool) {
        self.in_flight += 1;
        self.units += units;
        self.generation += u64::from(!keeps_order);
    }

    /// Whether a call may leave.
    pub(super) fn is_open(&self, hurry: Hurry) -> bool {
        let most = match hurry {
            Hurry::Refreshes => MOST,
            _ if self.claims.len() >= MOST_CLAIMS => MOST,
            Hurry::Releases => MORE,
            Hurry::None => FEW,
        };
        let is_idle = self.units < MOST_UNITS;
        is_idle && self.is_connected && self.in_flight < most
    }
}
