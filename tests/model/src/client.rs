//! A client: a process with one claim at a time. It acts as the documentation of the store says.

use crate::{call::Answer, time::NEVER};

/// What a client knows of its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has none.
    Idle,
    /// An acquire was sent and is not answered.
    Wanting,
    /// It waits.
    Queued,
    /// It has a permit.
    Held,
    /// Its lease has ended, and it goes on.
    Lost,
    /// It is to be released.
    Leaving,
    /// Nothing of it is in the server. Requests may still be on their way.
    Done,
    /// The process was killed.
    Dead,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Acquires, or polls.
    Acquire,
    /// Refreshes all units.
    Refresh,
    /// Releases all units.
    Release,
    /// Releases the second unit.
    Lighten,
}

/// A request under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    /// What it does.
    pub kind: Kind,
    /// The levels at which it waits, as bits.
    pub waits: u8,
    /// The levels whose arrival it carries, as bits.
    pub knows: u8,
    /// Until when an acquire may run, ms of the server's clock from now; -1: past.
    pub deadline: i64,
    /// Whether a release is answered in full.
    pub with_answer: bool,
    /// Whether the permit has one unit less.
    pub is_light: bool,
    /// Of an acquire, whether one was sent for the same permit before.
    pub was_sent: bool,
}

/// Whether an operator has revoked a client's permit. The client does not know it from here. It makes
/// no other claim, because in the model that would have the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Revocation {
    /// It was not.
    None,
    /// It was.
    Revoked,
    /// The first acquire came after it.
    Returned,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To an acquire.
    Acquired(Answer),
    /// To a refresh: whether all units are held.
    Refreshed(bool),
    /// To a release: whether no acquire can run after it.
    Released(bool),
}

/// A request whose answer the client awaits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pending {
    /// The request.
    pub request: Request,
    /// When it was sent, ms from now.
    pub sent: i64,
    /// The reply under way.
    pub reply: Option<Reply>,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    /// What it knows.
    pub phase: Phase,
    /// Which of its claims it makes.
    pub claim: u8,
    /// The levels where its wait is over, as bits.
    pub over: u8,
    /// The level where it waits.
    pub at: u8,
    /// The arrival at each level, from now, microseconds, or never.
    pub arrivals: [i64; 2],
    /// The last token at its last poll.
    pub last_token: i64,
    /// Until when a grant counts that it is notified of, ms.
    pub provisional: i64,
    /// When it polls, ms.
    pub due: i64,
    /// Until when it counts as holding its permit, ms.
    pub until: i64,
    /// Until when an acquire without an answer may run, ms of the server's clock, or never.
    pub unanswered: i64,
    /// Whether it has released its second unit.
    pub is_light: bool,
    /// How far the highest time of the server's clock is ahead, as far as it knows, microseconds.
    pub ahead: i64,
    /// The request that it awaits.
    pub pending: Option<Pending>,
    /// Requests that it does not await any more.
    pub late: Vec<Request>,
    /// A message for it: the level, and the token if the claim was granted.
    pub wake: Option<(u8, Option<i64>)>,
    /// Whether its permit was revoked.
    pub revocation: Revocation,
    /// Whether a message for it says so.
    pub is_told: bool,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            claim: 0,
            over: 0,
            at: 0,
            arrivals: [NEVER; 2],
            last_token: NEVER,
            provisional: 0,
            due: 0,
            until: 0,
            unanswered: NEVER,
            is_light: false,
            ahead: NEVER,
            pending: None,
            late: Vec::new(),
            wake: None,
            revocation: Revocation::None,
            is_told: false,
        }
    }
}
