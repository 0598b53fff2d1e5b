//! The numbers of a claim, as a store reads them.

use std::time::Duration;

/// The numbers of a claim that a store can grant: 1 ≤ weight ≤ limit. [`Claim::units`](super::Claim::units) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Units {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

impl Units {
    /// How many units the key's permits may hold together. See [`Claim::units`](super::Claim::units) for an example.
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// How many of those units the claim takes. See [`Claim::units`](super::Claim::units) for an example.
    pub fn weight(self) -> u32 {
        self.weight
    }
}

/// How a claim waits. [`Claim::wait`](super::Claim::wait) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Wait {
    /// The longest time that the claim waits, greater than zero.
    pub time: Duration,
    /// How many claims may wait for the key up to this one, in the order of the queue.
    pub max_waiting: u32,
    /// How much earlier than it arrived the claim counts as arrived.
    pub head_start: Duration,
}
