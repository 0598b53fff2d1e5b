//! The steps of a case.

use crate::model::Units;
use proptest::{collection::vec, prelude::*, sample::Index};
use std::time::Duration;
use tower_semaphore::Claim;

/// Keys of a case.
pub(crate) const KEYS: usize = 3;
/// Processes that share the store.
pub(crate) const PROCESSES: usize = 2;

/// A wait that no case outlasts.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(60);
/// A wait that times out soon.
pub(crate) const SHORT_WAIT: Duration = Duration::from_millis(3);

/// One step. An index selects one of the permits or waiters that exist then; without any, nothing
/// happens.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// A process acquires a permit.
    Acquire(ClaimSpec),
    /// A waiter is dropped.
    Cancel(Index),
    /// A permit is released, and the answer is awaited.
    Release(Index),
    /// A clone of a permit is dropped.
    Drop(Index),
    /// A permit is cloned.
    Clone(Index),
    /// A permit reaches the bound of how long it is held.
    End(Index),
    /// A lease ends. The flag: the server still lists it.
    Expire(Index, bool),
    /// The token counter of a key expires.
    ExpireToken(usize),
}

/// A claim, and the process that makes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimSpec {
    pub(crate) process: usize,
    pub(crate) key: usize,
    pub(crate) units: Units,
    pub(crate) wait: Option<WaitSpec>,
}

/// How a claim waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitSpec {
    pub(crate) is_short: bool,
    /// How many claims may wait for the key, this one included.
    pub(crate) max_waiting: u32,
}

impl ClaimSpec {
    /// The claim for a key, with this time if it waits.
    pub(crate) fn of(self, claim: Claim, time: Duration) -> Claim {
        let Units { limit, weight } = self.units;
        let claim = claim.with_limit(limit).with_weight(weight);
        match self.wait {
            Some(wait) => claim.with_wait(time).with_max_waiting(wait.max_waiting),
            None => claim,
        }
    }
}

fn spec() -> impl Strategy<Value = ClaimSpec> {
    // Mostly one limit, so that the units held come near it; sometimes another.
    let limit = prop_oneof![4 => Just(4_u32), 1 => 0..=8_u32];
    let weight = prop_oneof![3 => Just(1_u32), 2 => 2..=5_u32];
    let units = (limit, weight).prop_map(|(limit, weight)| Units { limit, weight });
    let is_short = prop::bool::weighted(0.1);
    let max_waiting = prop_oneof![4 => Just(1_000_u32), 1 => 0..4_u32];
    let wait = (is_short, max_waiting).prop_map(|(is_short, max_waiting)| WaitSpec {
        is_short,
        max_waiting,
    });
    let wait = prop::option::of(wait);
    (0..PROCESSES, 0..KEYS, units, wait).prop_map(|(process, key, units, wait)| ClaimSpec {
        process,
        key,
        units,
        wait,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    prop_oneof![
        10 => spec().prop_map(Op::Acquire),
        2 => index().prop_map(Op::Cancel),
        3 => index().prop_map(Op::Release),
        3 => index().prop_map(Op::Drop),
        2 => index().prop_map(Op::Clone),
        1 => index().prop_map(Op::End),
        1 => (index(), any::<bool>()).prop_map(|(index, listed)| Op::Expire(index, listed)),
        1 => (0..KEYS).prop_map(Op::ExpireToken),
    ]
}

/// The steps of a case, a few dozen.
pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..50)
}
