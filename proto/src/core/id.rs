//! Identifiers.

use super::table::EntryId;

/// Identifies a claim, and the permit that it becomes. `serial` is never used again, `index` is its place in the table
/// of the permits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId {
    pub index: usize,
    pub serial: u64,
}

/// A lease: its permit, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseRef(pub(super) PermitId, pub(super) usize);

/// Identifies a debt. `serial` is never used again, `index` is its place in the table of the debts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DebtId {
    index: usize,
    serial: u64,
}

impl EntryId for PermitId {
    fn new(index: usize, serial: u64) -> Self {
        Self { index, serial }
    }

    fn index(self) -> usize {
        self.index
    }
}

impl EntryId for DebtId {
    fn new(index: usize, serial: u64) -> Self {
        Self { index, serial }
    }

    fn index(self) -> usize {
        self.index
    }
}

/// Identifies a call. Later calls have higher numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A runtime of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeId(pub u32);

/// The keeper's thread.
pub const THREAD: RuntimeId = RuntimeId(0);

/// A network connection: its runtime, its server, and its generation. Commands arrive in the order in which they were
/// written to it.
pub(super) type ConnectionId = (RuntimeId, usize, u64);
