//! What things are called.

/// A claim and its permit have one number, which is never used again, and a place where the core finds them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId {
    pub slot: usize,
    pub serial: u64,
}

/// A lease, by its number in its permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseRef(pub(super) PermitId, pub(super) usize);

/// A debt has one number, which is never used again, and a place where the core finds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DebtId {
    pub(super) slot: usize,
    pub(super) serial: u64,
}

/// A number of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A runtime of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeId(pub u32);

/// The keeper's thread.
pub const THREAD: RuntimeId = RuntimeId(0);

/// A connection of a runtime to a server: what is sent over it arrives in that order.
pub(super) type Connection = (RuntimeId, usize, u64);
