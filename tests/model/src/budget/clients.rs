//! The clients of a walk, and their requests.

use crate::time::TICK;
use std::collections::BTreeSet;

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

impl Claim {
    /// The total that a grant settles.
    pub(super) fn spent_at_once(&self) -> i64 {
        if self.is_rate { self.weight } else { 0 }
    }
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

    /// True for an acquire that changes nothing any more.
    pub(super) fn is_late(&self, now: i64) -> bool {
        self.kind == Kind::Acquire && now > self.deadline()
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

    /// True while it has a claim or a permit, and has not crashed.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Done | Phase::Dead)
    }

    /// The requests that it may send now for this claim.
    pub(super) fn kinds(&self, claim: Claim) -> Vec<Kind> {
        match self.phase {
            Phase::Idle => vec![Kind::Acquire],
            Phase::Wanting | Phase::Queued => vec![Kind::Acquire, Kind::Release(0)],
            Phase::Provisional => vec![Kind::Refresh(claim.spent_at_once()), Kind::Release(0)],
            Phase::Held => {
                let totals = if claim.is_rate {
                    BTreeSet::from([claim.weight])
                } else {
                    BTreeSet::from([self.total, claim.weight, claim.weight + 1])
                };
                let totals = totals.into_iter().filter(|total| *total >= self.total);
                totals
                    .flat_map(|total| [Kind::Refresh(total), Kind::Release(total)])
                    .collect()
            }
            Phase::Done | Phase::Dead => Vec::new(),
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
