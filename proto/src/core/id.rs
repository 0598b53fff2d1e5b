//! Identifiers.

/// Identifies a claim, and the permit that it becomes. `serial` is never used again, `slot` is its place in a slab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId {
    pub slot: usize,
    pub serial: u64,
}

/// A lease, by its number in its permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseRef(pub(super) PermitId, pub(super) usize);

/// Identifies a debt. `serial` is never used again, `slot` is its place in a slab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DebtId {
    pub(super) slot: usize,
    pub(super) serial: u64,
}

/// Identifies a call. Later calls have higher numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A runtime of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeId(pub u32);

/// The keeper's thread.
pub const THREAD: RuntimeId = RuntimeId(0);

/// A runtime's connection to a server, by the number of the connection in its lane. What is sent over it arrives in that
/// order.
pub(super) type Connection = (RuntimeId, usize, u64);
