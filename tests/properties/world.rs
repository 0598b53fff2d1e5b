//! The stores, and what can be seen of them from outside.

use crate::op::PROCESSES;
use std::time::Duration;
use tower_semaphore::{
    AcquireError, Claim, MemorySemaphore, Permit, Semaphore, semaphore::MAX_WEIGHT,
};

/// The name by which a store knows a permit, where it has one.
pub(crate) type Name = Vec<u8>;

/// A store with the means to look into it.
pub(crate) trait World {
    /// The store as one of the processes that share it has it.
    fn store(&self, process: usize) -> &dyn Semaphore;

    /// A claim for a key that no other case has.
    fn claim(&self, key: usize) -> Claim;

    /// How many units of a key are held.
    async fn held(&mut self, key: usize) -> u32;

    /// The name of the permit that was asked for last.
    async fn name(&mut self, key: usize) -> Name;

    /// Ends a permit's lease, although its holder still runs.
    async fn expire(&mut self, key: usize, name: &Name, permit: &Permit, listed: bool);

    /// Does what time does to the counter of a key that nobody asks for.
    async fn forget(&mut self, key: usize);
}

/// A store in memory, of which there is one for each case.
pub(crate) struct Memory(MemorySemaphore);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(MemorySemaphore::new())
    }
}

impl World for Memory {
    fn store(&self, process: usize) -> &dyn Semaphore {
        assert!(process < PROCESSES);
        &self.0
    }

    fn claim(&self, key: usize) -> Claim {
        Claim::new(key as u64)
    }

    /// As a claim is told that fits only if nothing is held.
    async fn held(&mut self, key: usize) -> u32 {
        let all = self
            .claim(key)
            .with_limit(MAX_WEIGHT)
            .with_weight(MAX_WEIGHT);
        match self.0.acquire(all).await {
            Ok(permit) => assert!(permit.release().await),
            Err(AcquireError::Full { held, .. }) => return held,
            Err(error) => panic!("{error:?}"),
        }
        0
    }

    async fn name(&mut self, _: usize) -> Name {
        Name::new()
    }

    /// A permit in memory has no lease; the longest time that it may be held comes next to it.
    async fn expire(&mut self, _: usize, _: &Name, permit: &Permit, _: bool) {
        end(permit).await;
    }

    async fn forget(&mut self, _: usize) {}
}

/// Ends a permit by the longest time that it may be held.
pub(crate) async fn end(permit: &Permit) {
    permit.end_after(Duration::ZERO);
    permit.lost().await;
}
