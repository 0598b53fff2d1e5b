//! What travels to a server and back.

use super::{
    id::{At, CallId, Connection, RuntimeId},
    time::Time,
};
use crate::redis::protocol::Command;
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// Whether a call has left over its connection, which its carrier notes, and whether it has run, or never will. Calls
/// arrive in the order in which they leave, and a carrier may be slower than that of a later call.
#[derive(Debug, Clone, Default)]
pub(in crate::redis) struct Left(Arc<AtomicU8>);

const LEFT: u8 = 1;
const OVER: u8 = 2;

impl Left {
    pub(in crate::redis) fn note(&self) {
        self.0.fetch_or(LEFT, Ordering::Release);
    }

    pub(super) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire) & LEFT != 0
    }

    pub(super) fn note_over(&self) {
        self.0.fetch_or(OVER, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) & OVER != 0
    }
}

/// What a runtime sends to a server together. An answer counts for a timeout.
#[derive(Debug)]
pub(in crate::redis) struct Call {
    pub(in crate::redis) id: CallId,
    pub(in crate::redis) runtime: RuntimeId,
    pub(in crate::redis) server: usize,
    /// In this order.
    pub(in crate::redis) commands: Vec<Command>,
    pub(in crate::redis) left: Left,
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
    /// It has run, and too few replicas have what it has written.
    Unconfirmed,
}

/// A call in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) id: CallId,
    pub(super) runtime: RuntimeId,
    pub(super) server: usize,
    /// Which connection of the runtime to the server takes it.
    pub(super) generation: u64,
    pub(super) sent: Time,
    pub(super) deadline: Time,
    /// How many leases it acquires.
    pub(super) claims: usize,
    /// What each command names, in the order of its answer.
    pub(super) items: Vec<Items>,
    /// How many units they have.
    pub(super) units: usize,
    /// True for a call of a runtime that has no claims. If it is not answered soon, the thread sends its releases too.
    pub(super) may_stall: bool,
    pub(super) left: Left,
}

impl Flight {
    fn connection(&self) -> Connection {
        (self.runtime, self.server, self.generation)
    }
}

/// What a lease remembers of a call: it may run yet, unless it is over.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) call: CallId,
    pub(super) until: Time,
    connection: Connection,
    pub(super) left: Left,
}

impl Sent {
    pub(super) fn in_call(flight: &Flight) -> Self {
        Self {
            call: flight.id,
            until: flight.deadline,
            connection: flight.connection(),
            left: flight.left.clone(),
        }
    }

    /// Whether it has left over the connection of a later call, so that it runs before that.
    pub(super) fn is_before(&self, later: &Flight) -> bool {
        self.connection == later.connection() && self.left.is_noted()
    }
}

/// A key that is of no semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StoreKey {
    Clock,
    Processes,
    Limits,
    /// In which this process says who it is.
    Process,
}

#[derive(Debug)]
pub(super) enum Items {
    Acquire(Vec<At>),
    /// A lease of several levels is named by several groups.
    Refresh(Vec<At>),
    /// Also, whether the release is the last word.
    Release(Vec<(At, bool)>),
    /// The key that it names, if it names one.
    Presence(Option<StoreKey>),
    Leave,
    /// The next command runs although its slot is moving.
    Asking,
    /// The answers to the others count if enough replicas have what they have written.
    Confirm,
}

impl Items {
    pub(super) fn leases(&self) -> Vec<At> {
        match self {
            Self::Acquire(all) | Self::Refresh(all) => all.clone(),
            Self::Release(all) => all.iter().map(|(at, _)| *at).collect(),
            Self::Presence(_) | Self::Leave | Self::Asking | Self::Confirm => Vec::new(),
        }
    }
}

/// What a call has used up of what it may cost, in one rule for all commands.
#[derive(Debug, Default)]
pub(super) struct Bill {
    args: usize,
    pub(super) units: usize,
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
