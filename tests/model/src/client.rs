//! A client: a process with one claim at a time. It follows the documentation of the store.

use crate::{call::Answer, time::NEVER};

/// A client's knowledge of its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has no claim.
    Idle,
    /// An acquire was sent and is not answered.
    Wanting,
    /// It waits in a queue.
    Queued,
    /// It has a permit.
    Held,
    /// Its lease has ended, but its holder still works. It may acquire the permit again.
    Lost,
    /// It is being released.
    Leaving,
    /// The server has nothing left of it. Requests may still be on their way.
    Done,
    /// The process was killed.
    Dead,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Acquires or polls.
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
    /// Its purpose.
    pub kind: Kind,
    /// The levels at which it waits, as bits.
    pub waits: u8,
    /// The levels at which it sends the arrival of an earlier answer, as bits.
    pub sends_arrival: u8,
    /// The time until which an acquire may run, in ms of the server's clock from now; -1 if it has passed.
    pub deadline: i64,
    /// True if a release asks which units were still held; otherwise the server answers only 0.
    pub with_answer: bool,
    /// True if the permit has released its second unit.
    pub is_light: bool,
    /// True if this is an acquire, and another one was sent for the same permit before.
    pub was_sent: bool,
}

/// The state of a client's permit after an operator's revocation. The client learns of it only from answers and
/// messages. After a revocation it makes no other claim, because in the model that claim would have the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Revocation {
    /// The permit was not revoked.
    None,
    /// The permit was revoked.
    Revoked,
    /// The first acquire ran after a second one, whose permit was revoked, and brought the permit back.
    Returned,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The answer to an acquire.
    Acquired(Answer),
    /// The answer to a refresh: true if all units are held.
    Refreshed(bool),
    /// The answer to a release: true if no acquire can run after it.
    Released(bool),
}

/// A request whose answer the client awaits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pending {
    /// The request.
    pub request: Request,
    /// The time when it was sent, in ms from now.
    pub sent: i64,
    /// The reply under way.
    pub reply: Option<Reply>,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its knowledge of its claim.
    pub phase: Phase,
    /// The index of its current claim.
    pub claim: u8,
    /// The levels whose maximum wait is over, as bits.
    pub over: u8,
    /// The level where it waits.
    pub at: u8,
    /// The arrival at each level in microseconds from now, or `NEVER`.
    pub arrivals: [i64; 2],
    /// The key's last token at its last poll. A message with a later token grants the claim.
    pub last_token: i64,
    /// The end of the lease that a message would grant, in ms from now.
    pub provisional: i64,
    /// The time of its next poll, in ms from now.
    pub due: i64,
    /// The time until which it counts as holding its permit, in ms from now.
    pub until: i64,
    /// The time until which an unanswered acquire may run, in ms of the server's clock, or `NEVER`.
    pub unanswered: i64,
    /// True once it has released its second unit.
    pub is_light: bool,
    /// The highest time of the server's clock that it has seen, in microseconds from now, or `NEVER`.
    pub ahead: i64,
    /// The request whose answer it awaits.
    pub pending: Option<Pending>,
    /// The requests whose answers it no longer awaits.
    pub late: Vec<Request>,
    /// A message for it: the level, and the token if the claim was granted.
    pub wake: Option<(u8, Option<i64>)>,
    /// The state of its permit after a revocation.
    pub revocation: Revocation,
    /// True while a message about the revocation is under way.
    pub has_revoked_message: bool,
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
            has_revoked_message: false,
        }
    }
}
