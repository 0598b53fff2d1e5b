//! One runtime's connection to a server.

use super::lease::At;
use std::collections::VecDeque;

/// A runtime of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::redis) struct RuntimeId(pub(in crate::redis) u32);

/// The keeper's thread.
pub(in crate::redis) const THREAD: RuntimeId = RuntimeId(0);

/// So many calls in flight leave time for others to gather, and a round trip that is not idle.
const FEW: usize = 4;

/// The most calls in flight: each but the first few is full, or has releases that are due.
const MOST: usize = 16;

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
}

impl Lane {
    pub(super) fn connect(&mut self) {
        (self.is_connected, self.generation) = (true, self.generation + 1);
    }

    /// Whether a call may leave.
    pub(super) fn is_open(&self, is_urgent: bool) -> bool {
        let most = match is_urgent || self.claims.len() >= MOST_CLAIMS {
            true => MOST,
            false => FEW,
        };
        self.is_connected && self.in_flight < most
    }
}
