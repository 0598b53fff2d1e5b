//! What is known of a semaphore that this process has claimed.

use super::lease::At;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Key {
    /// How many leases of this process have it as a level. With none it is forgotten.
    pub(super) leases: u32,
    /// The leases whose release has no answer yet.
    pub(super) releases: BTreeSet<At>,
    /// Whether the last answer said that it is full, or that a claim waits.
    pub(super) is_contended: bool,
}
