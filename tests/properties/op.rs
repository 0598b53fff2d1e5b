//! What may happen next.

use crate::model::Want;
use proptest::{collection::vec, prelude::*, sample::Index};
use std::time::Duration;
use tower_semaphore::Claim;

/// Keys of a case.
pub(crate) const KEYS: usize = 3;
/// Processes that share the store.
pub(crate) const PROCESSES: usize = 2;

/// Longer than any case takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
const BRIEF: Duration = Duration::from_millis(3);

/// One step. An index chooses among those who are there then; without any, nothing happens.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// A process asks for a permit.
    Acquire(Ask),
    /// A claim that waits is dropped.
    Cancel(Index),
    /// A holder gives its permit back and asks whether it still had it.
    Release(Index),
    /// A holder is done with its handle.
    Drop(Index),
    /// A holder shares its permit.
    Clone(Index),
    /// A permit reaches the longest time that it may be held.
    End(Index),
    /// A lease ends: the server still lists it, or does not list it any more.
    Expire(Index, bool),
    /// The counter of a key that nobody asked for expires.
    Forget(usize),
}

/// Who asks for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) process: usize,
    pub(crate) key: usize,
    pub(crate) want: Want,
    /// How long it may wait, and in a line of how many at most.
    pub(crate) wait: Option<(Duration, usize)>,
}

impl Ask {
    /// What is asked of a key.
    pub(crate) fn of(self, claim: Claim) -> Claim {
        let Want { limit, weight } = self.want;
        let claim = claim.with_limit(limit).with_weight(weight);
        match self.wait {
            Some((time, longest)) => claim.with_wait(time).with_max_waiting(longest),
            None => claim,
        }
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    // Mostly one limit, so that what is held comes near it; else a change of it.
    let limit = prop_oneof![4 => Just(4_u32), 1 => 0..=8_u32];
    let weight = prop_oneof![3 => Just(1_u32), 2 => 2..=5_u32];
    let want = (limit, weight).prop_map(|(limit, weight)| Want { limit, weight });
    let time = prop_oneof![12 => Just(LONG), 1 => Just(BRIEF)];
    let longest = prop_oneof![4 => Just(1_000_usize), 1 => 0..4_usize];
    let wait = prop::option::of((time, longest));
    (0..PROCESSES, 0..KEYS, want, wait).prop_map(|(process, key, want, wait)| Ask {
        process,
        key,
        want,
        wait,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    prop_oneof![
        10 => ask().prop_map(Op::Acquire),
        2 => index().prop_map(Op::Cancel),
        3 => index().prop_map(Op::Release),
        3 => index().prop_map(Op::Drop),
        2 => index().prop_map(Op::Clone),
        1 => index().prop_map(Op::End),
        1 => (index(), any::<bool>()).prop_map(|(index, listed)| Op::Expire(index, listed)),
        1 => (0..KEYS).prop_map(Op::Forget),
    ]
}

/// A few dozen steps.
pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..50)
}
