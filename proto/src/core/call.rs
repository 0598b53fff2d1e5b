//! Calls to a server, and their answers.

use super::{
    id::{CallId, ConnectionId, DebtId, LeaseRef, RuntimeId},
    time::Time,
};
use crate::verbs::Command;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

/// The progress of a call, shared by the core and the task of the driver that carries the call. The task notes that the
/// call was written to its connection. The core notes that the call is over: it has run, or never will. Calls arrive in
/// the order in which they were written.
#[derive(Debug, Clone, Default)]
pub struct CallProgress(Arc<AtomicU8>);

const WRITTEN: u8 = 1;
const OVER: u8 = 2;

impl CallProgress {
    pub fn note_written(&self) {
        self.0.fetch_or(WRITTEN, Ordering::Release);
    }

    pub(super) fn was_written(&self) -> bool {
        self.0.load(Ordering::Acquire) & WRITTEN != 0
    }

    pub(super) fn note_over(&self) {
        self.0.fetch_or(OVER, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) & OVER != 0
    }
}

/// The commands that a runtime sends to a server together. An answer counts within a timeout.
#[derive(Debug)]
pub struct Call {
    pub id: CallId,
    pub runtime: RuntimeId,
    pub server: usize,
    /// In the order in which they run.
    pub commands: Vec<Command>,
    pub progress: CallProgress,
}

/// The reason why a call has failed, or why its answer does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailure {
    /// It was not sent, because the runtime had no connection.
    NotConnected,
    /// The connection broke. The call may still run.
    Broken,
    /// Its deadline has passed. It may still run.
    TimedOut,
    /// The task that carried it was dropped. It may still run.
    Abandoned,
    /// It has run, but too few replicas have its writes.
    Unconfirmed,
}

/// A call in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) id: CallId,
    pub(super) runtime: RuntimeId,
    pub(super) server: usize,
    /// The generation of the connection that it is sent over.
    pub(super) generation: u64,
    pub(super) sent: Time,
    pub(super) deadline: Time,
    /// The number of leases that it acquires.
    pub(super) acquires: usize,
    /// The leases, debts or key of each command, in the order of the answers.
    pub(super) items: Vec<Items>,
    /// The number of units that the commands name.
    pub(super) units: usize,
    /// True for a call without claims from a runtime. If it is not answered soon, the thread sends its releases too.
    pub(super) may_stall: bool,
    pub(super) progress: CallProgress,
}

impl Flight {
    fn connection(&self) -> ConnectionId {
        (self.runtime, self.server, self.generation)
    }
}

/// A record of a call that names a lease or a debt. The call may still run unless it is over.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) call: CallId,
    /// The call's deadline. An acquire cannot run later (rule 2).
    pub(super) until: Time,
    connection: ConnectionId,
    pub(super) progress: CallProgress,
}

impl Sent {
    pub(super) fn in_call(flight: &Flight) -> Self {
        Self {
            call: flight.id,
            until: flight.deadline,
            connection: flight.connection(),
            progress: flight.progress.clone(),
        }
    }

    /// True if this call runs before a later one, because it was written to the same connection.
    pub(super) fn is_before(&self, later: &Flight) -> bool {
        self.connection == later.connection() && self.progress.was_written()
    }
}

/// The sent acquires of some units, until they are over.
#[derive(Debug, Default)]
pub(super) struct Acquires(Vec<Sent>);

impl Acquires {
    /// Notes that an acquire is sent.
    pub(super) fn note_sent(&mut self, flight: &Flight) {
        self.0.retain(|acquire| !acquire.progress.is_over());
        self.0.reserve_exact(1);
        self.0.push(Sent::in_call(flight));
    }

    /// A copy without those that are over.
    pub(super) fn pending(&self) -> Self {
        Self(self.not_over().cloned().collect())
    }

    fn not_over(&self) -> impl Iterator<Item = &Sent> {
        self.0.iter().filter(|acquire| !acquire.progress.is_over())
    }

    pub(super) fn are_over(&self) -> bool {
        self.not_over().next().is_none()
    }

    /// The time until which one may still run.
    pub(super) fn run_until(&self) -> Time {
        let untils = self.not_over().map(|acquire| acquire.until);
        untils.max().unwrap_or_default()
    }

    /// True if none can run after a release in this call (rule 3).
    pub(super) fn are_before(&self, flight: &Flight) -> bool {
        let is_before = |acquire: &Sent| acquire.until <= flight.sent || acquire.is_before(flight);
        self.not_over().all(is_before)
    }

    /// True if the refusal of an acquire from `sent` proves that the server has none of the units. An acquire that
    /// could still run at that time may grant them later: calls may run in another order than they were sent in.
    pub(super) fn proves_absence(&self, sent: Time) -> bool {
        self.run_until() <= sent
    }
}

/// A key of the store that belongs to no semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StoreKey {
    Clock,
    Processes,
    Limits,
    /// The description of this process.
    Process,
}

/// The leases, debts or key that a command names. Leases and debts of a command are in one slot, whose number comes
/// first.
#[derive(Debug)]
pub(super) enum Items {
    Acquire(u16, Vec<LeaseRef>),
    /// A lease of several levels is named once for each level.
    Refresh(u16, Vec<LeaseRef>),
    /// A debt for units of several semaphores is named once for each. True if the release can settle the debt: no
    /// acquire of its units can run afterwards.
    Release(u16, Vec<(DebtId, bool)>),
    /// The key that the command names, if any.
    Presence(Option<StoreKey>),
    Leave,
    /// Lets the server run the next command although its slot is moving.
    Asking,
    /// Waits for replicas. The other answers count only if enough replicas have their writes.
    Confirm,
}

impl Items {
    /// The leases that the command names, once for each group.
    pub(super) fn leases(&self) -> &[LeaseRef] {
        match self {
            Self::Acquire(_, all) | Self::Refresh(_, all) => all,
            _ => &[],
        }
    }

    /// The debts that the command names.
    pub(super) fn debts(&self) -> BTreeSet<DebtId> {
        match self {
            Self::Release(_, all) => all.iter().map(|(debt, _)| *debt).collect(),
            _ => BTreeSet::new(),
        }
    }
}

/// The size of a call so far. One estimate covers all kinds of commands.
#[derive(Debug, Default)]
pub(super) struct CallSize {
    args: usize,
    pub(super) units: usize,
}

/// ElastiCache Serverless refuses a request with more than 3,999 arguments, including keys. 16 are left for the
/// command.
const MOST_ARGS: usize = 3_999 - 16;

/// A server needs at most about 5 ms for this number of units. A script passes two values for each unit to a command,
/// and Lua passes at most 8,000.
const MOST_UNITS: usize = 4_000;

impl CallSize {
    /// Adds units of some levels, if they fit. The first addition always fits.
    pub(super) fn add(&mut self, levels: usize, units: usize) -> bool {
        // Each level needs four keys, the number of its arguments, and the other arguments of an acquire.
        let args = self.args + levels * 9 + units;
        let units = self.units + units;
        let fits = self.args == 0 || args <= MOST_ARGS && units <= MOST_UNITS;
        if fits {
            (self.args, self.units) = (args, units);
        }
        fits
    }
}
