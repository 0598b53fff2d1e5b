//! What travels to a server and back.

use super::{
    id::{At, CallId, RuntimeId},
    lease::Work,
    time::Time,
};
use crate::redis::protocol::PermitId as UnitsOf;
use std::{sync::Arc, time::Duration};

/// What a runtime sends to a server together.
#[derive(Debug)]
pub(in crate::redis) struct Call {
    pub(in crate::redis) id: CallId,
    pub(in crate::redis) server: usize,
    /// In this order.
    pub(in crate::redis) commands: Vec<Command>,
    /// Until when an answer counts.
    pub(in crate::redis) deadline: Time,
}

/// Permits of a semaphore.
pub(in crate::redis) type Group = (Arc<str>, Vec<UnitsOf>);

/// One run of a script.
#[derive(Debug, Clone)]
pub(in crate::redis) enum Command {
    /// Grants permits or positions. A poll and a heartbeat are the same.
    Acquire {
        /// How long a grant lasts without a refresh.
        lasts: Duration,
        /// Ms of the server's clock, after which it changes nothing.
        runs_until: u64,
        /// Microseconds, the least token of a semaphore without one.
        floor: u64,
        /// The levels of each claim.
        claims: Vec<Vec<Wanted>>,
    },
    /// Moves ends forward.
    Refresh {
        /// How long from now on.
        lasts: Duration,
        groups: Vec<Group>,
    },
    /// Frees units, or leaves queues.
    Release {
        /// Whether the answer says what was held.
        with_answer: bool,
        floor: u64,
        groups: Vec<Group>,
    },
    /// Says that this process lives, and reads the server's clock.
    Presence {
        /// The highest time of the server that this process has seen, microseconds.
        highest: u64,
    },
}

/// A level of a claim.
#[derive(Debug, Clone)]
pub(in crate::redis) struct Wanted {
    pub(in crate::redis) name: Arc<str>,
    pub(in crate::redis) units: UnitsOf,
    /// `None`: it does not wait, or no longer.
    pub(in crate::redis) position: Option<Position>,
    /// Whether an acquire of it was sent before, so that an operator may have revoked it.
    pub(in crate::redis) is_known: bool,
}

/// A position in a queue, sent with each acquire.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) struct Position {
    /// How long the waiter counts as alive after this acquire.
    pub(in crate::redis) alive: Duration,
    pub(in crate::redis) max_waiting: u32,
    /// The arrival that the server returned before; 0 if there is none.
    pub(in crate::redis) arrival: u64,
    pub(in crate::redis) head_start: Duration,
}

/// The answer to a command.
#[derive(Debug, Clone)]
pub(in crate::redis) enum Answer {
    /// It came after its end, and has changed nothing. The server's time, ms.
    Late(u64),
    /// The same, and for each claim.
    Acquired(u64, Vec<Acquired>),
    /// Whether each permit of each group is held.
    Held(Vec<bool>),
    /// Nothing was asked.
    Done,
    /// The server's time, ms, and the highest that any process has seen, microseconds.
    Presence(u64, u64),
    /// The server could not run it. Nothing was changed.
    Error,
}

/// The answer for a claim. Levels count from its first.
#[derive(Debug, Clone)]
pub(in crate::redis) enum Acquired {
    /// The token of each level, and how many units are held there.
    Granted(Vec<(u64, u32)>),
    Full {
        level: usize,
        held: u32,
    },
    QueueFull {
        level: usize,
    },
    /// An operator has revoked it.
    Revoked,
    /// It waits at this level, and holds the narrower ones.
    Queued {
        level: usize,
        arrival: u64,
        /// When the head should poll.
        recheck: Option<Duration>,
        /// It holds nothing, so no token up to this is its own.
        last_token: u64,
    },
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Failure {
    /// There was no connection, so it was not sent.
    NotConnected,
    /// The connection broke. It may run yet.
    Broken,
    /// Its deadline has passed. It may run yet.
    TimedOut,
    /// Its carrier was dropped. It may run yet.
    Abandoned,
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: CallId,
    pub(super) runtime: RuntimeId,
    pub(super) server: usize,
    pub(super) sent: Time,
    pub(super) deadline: Time,
    /// What each command names, in the order of its answer.
    pub(super) items: Vec<Items>,
}

impl Flight {
    /// The leases that it acquires or refreshes.
    pub(super) fn named(&self, work: Work) -> impl Iterator<Item = At> {
        self.items
            .iter()
            .flat_map(move |items| match items {
                Items::Acquire(all) if work == Work::Acquire => &all[..],
                Items::Refresh(all) if work == Work::Refresh => &all[..],
                _ => &[],
            })
            .copied()
    }
}

#[derive(Debug)]
pub(super) enum Items {
    Acquire(Vec<At>),
    /// A lease of several levels is named by several groups.
    Refresh(Vec<At>),
    /// Also, whether the release is the last word.
    Release(Vec<(At, bool)>),
    Presence,
}

/// What a call has used up of what it may cost, in one rule for all commands.
#[derive(Debug, Default)]
pub(super) struct Bill {
    args: usize,
    units: usize,
}

/// ElastiCache Serverless refuses a request of more arguments, keys among them. Some are for the command.
const MOST_ARGS: usize = 3_999 - 16;

/// So many units take a server some 5 ms at most.
const MOST_UNITS: usize = 4_000;

impl Bill {
    /// Adds units of some levels, unless that is too much. The first always fits.
    pub(super) fn add(&mut self, levels: usize, units: usize) -> bool {
        // For each level four keys, how many arguments there are, and the others of an acquire.
        let args = self.args + levels * 9 + units;
        let units = self.units + units;
        let fits = self.args == 0 || args <= MOST_ARGS && units <= MOST_UNITS;
        if fits {
            (self.args, self.units) = (args, units);
        }
        fits
    }
}
