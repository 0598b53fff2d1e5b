//! Reads the counts of a store in memory from its refusals of the largest possible claims.

use super::model::{Each, everywhere};
use futures_util::FutureExt;
use std::time::Duration;
use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore, semaphore::MAX_WEIGHT};

/// A wait that no schedule outlasts.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(600);

/// The units held and the waiters of each key.
pub(crate) type Counts = (Each<u32>, Each<usize>);

pub(crate) fn claim(level: usize, key: usize) -> Claim {
    Claim::new(key as u64).with_policy(format!("level-{level}"))
}

/// A claim for as many units as its limit, so that it is refused if a single unit is held.
fn whole(level: usize, key: usize) -> Claim {
    let claim = claim(level, key).with_limit(MAX_WEIGHT);
    claim.with_weight(MAX_WEIGHT)
}

fn held(store: &MemorySemaphore, level: usize, key: usize) -> u32 {
    match store.acquire(whole(level, key)).now_or_never() {
        Some(Ok(_)) => 0,
        Some(Err(AcquireError::Full { held, .. })) => held,
        answer => panic!("{answer:?}"),
    }
}

/// The length of the queue: a claim is refused as long as it allows no more waiters than that.
fn waiting(store: &MemorySemaphore, level: usize, key: usize) -> usize {
    let is_longer = |length: &u32| {
        let claim = whole(level, key).with_wait(LONG_WAIT);
        let answer = store.acquire(claim.with_max_waiting(length + 1));
        matches!(
            answer.now_or_never(),
            Some(Err(AcquireError::QueueFull { .. }))
        )
    };
    (0..).take_while(is_longer).count()
}

pub(crate) fn counts(store: &MemorySemaphore) -> Counts {
    let mut counts = Counts::default();
    for (level, key) in everywhere() {
        counts.0[level][key] = held(store, level, key);
        counts.1[level][key] = waiting(store, level, key);
    }
    counts
}
