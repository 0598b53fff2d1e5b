//! The phases of an outage.

/// What is known of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::redis) enum Phase {
    /// The last call was answered.
    Well,
    /// The last calls failed.
    Failing,
    /// It has answered again, and other processes may not have found that yet.
    Settling,
    /// So many calls failed in a row that none but a probe is sent.
    Open,
}
