//! Drives a store and reads its state from outside.

use super::model::{Each, everywhere};
use futures_util::FutureExt;
use std::time::Duration;
use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore, semaphore::MAX_WEIGHT};

/// A wait that no schedule outlasts.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(600);

/// Units held and waiters of each key.
pub(crate) type Counts = (Each<u32>, Each<usize>);

/// A store whose state can be read and changed from outside.
pub(crate) trait Driver {
    /// The handle that one of the processes has of the store.
    fn store(&self, process: usize) -> &dyn Semaphore;

    fn claim(&self, level: usize, key: usize) -> Claim;

    /// One instant of the store.
    async fn counts(&mut self) -> Counts;

    /// Gives the store time to do what is still to happen.
    async fn pause(&mut self);

    /// Removes all that a process has, of all keys or of one, as when its leases and heartbeats
    /// have ended.
    async fn expire(&mut self, process: usize, only: Option<(usize, usize)>);

    /// Whether anything ends by itself here.
    fn has_leases(&self) -> bool;

    /// Returns once so many units of a process have a whole lease.
    async fn refreshed(&mut self, process: usize, expected: &Each<u32>);

    /// Lets the store notice that something has ended.
    async fn notice(&mut self, level: usize, key: usize);
}

/// A store in memory, a new one for each schedule.
#[derive(Default)]
pub(crate) struct Memory(MemorySemaphore);

impl Memory {
    fn held(&self, level: usize, key: usize) -> u32 {
        match self.0.acquire(whole(self.claim(level, key))).now_or_never() {
            Some(Ok(_)) => 0,
            Some(Err(AcquireError::Full { held, .. })) => held,
            answer => panic!("{answer:?}"),
        }
    }

    /// A claim joins the queue unless as many wait as it allows.
    fn waiting(&self, level: usize, key: usize) -> usize {
        let is_longer = |length: &u32| {
            let claim = whole(self.claim(level, key)).with_wait(LONG_WAIT);
            let answer = self.0.acquire(claim.with_max_waiting(length + 1));
            matches!(answer.now_or_never(), Some(Err(AcquireError::QueueFull)))
        };
        (0..).take_while(is_longer).count()
    }
}

/// A claim for far more than is ever left.
pub(crate) fn whole(claim: Claim) -> Claim {
    claim.with_limit(MAX_WEIGHT).with_weight(MAX_WEIGHT)
}

impl Driver for Memory {
    fn store(&self, _: usize) -> &dyn Semaphore {
        &self.0
    }

    fn claim(&self, level: usize, key: usize) -> Claim {
        Claim::new(key as u64).with_policy(format!("level-{level}"))
    }

    async fn counts(&mut self) -> Counts {
        let mut counts = Counts::default();
        for (level, key) in everywhere() {
            counts.0[level][key] = self.held(level, key);
            counts.1[level][key] = self.waiting(level, key);
        }
        counts
    }

    async fn pause(&mut self) {
        tokio::task::yield_now().await;
    }

    async fn expire(&mut self, _: usize, _: Option<(usize, usize)>) {}

    fn has_leases(&self) -> bool {
        false
    }

    async fn refreshed(&mut self, _: usize, _: &Each<u32>) {}

    async fn notice(&mut self, _: usize, _: usize) {}
}
