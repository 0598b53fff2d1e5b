//! The clients of a walk, and their requests.

use crate::time::TICK;

/// The claim that a client makes.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// Its estimate.
    pub weight: i64,
    /// True if its units are spent when it is granted.
    pub is_rate: bool,
    /// True if it waits.
    pub waits: bool,
}

/// The state of a client's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It has sent nothing yet.
    Idle,
    /// Its acquire has no answer yet.
    Wanting,
    Queued,
    /// It is granted for a short time, until all of its servers have granted it.
    Provisional,
    Held,
    /// It has ended its claim, or was refused.
    Done,
    /// It has crashed.
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Acquire,
    /// Settles this total. The first refresh of a provisional permit confirms it.
    Refresh(i64),
    /// Settles this total, and ends the claim.
    Release(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// When it was sent, in ms.
    pub(super) sent: i64,
    /// True if an acquire was sent before.
    pub(super) was_sent: bool,
    /// The arrival that the client knows, in microseconds; 0 if it knows none.
    pub(super) arrival: i64,
    /// For a release, true if an acquire may still run.
    pub(super) keeps: bool,
}

impl Request {
    /// The time after which an acquire changes nothing.
    pub(super) fn deadline(&self) -> i64 {
        self.sent + TICK
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    pub(super) arrival: i64,
    /// The highest total that it has settled.
    pub(super) total: i64,
    /// A request that has not arrived yet.
    pub(super) late: Option<Request>,
    pub(super) is_revoked: bool,
}

impl Client {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            arrival: 0,
            total: 0,
            late: None,
            is_revoked: false,
        }
    }

    pub(super) fn request(&self, kind: Kind, now: i64) -> Request {
        let is_open = |late: &Request| late.kind == Kind::Acquire && now <= late.deadline();
        Request {
            kind,
            sent: now,
            was_sent: self.phase != Phase::Idle,
            arrival: self.arrival,
            keeps: self.late.as_ref().is_some_and(is_open),
        }
    }
}
