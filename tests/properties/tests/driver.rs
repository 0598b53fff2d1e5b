//! Drives a store and reads its state from outside.

use crate::op::{LONG_WAIT, PROCESSES};
use futures_util::FutureExt;
use std::time::Duration;
use tower_semaphore::{
    AcquireError, Claim, MemorySemaphore, Permit, Semaphore, semaphore::MAX_WEIGHT,
};

/// The id by which a store knows a permit and a waiter.
pub(crate) type Name = Vec<u8>;

/// A store whose state can be read and changed from outside.
pub(crate) trait Driver {
    /// The handle that one of the processes has of the store.
    fn store(&self, process: usize) -> &dyn Semaphore;

    /// A claim for a key that no other case uses.
    fn claim(&self, key: usize) -> Claim;

    /// How many units of a key are held, and its queue.
    async fn inspect(&mut self, key: usize) -> (u32, Vec<Name>);

    /// The name of the last claim, once it is granted or in the queue.
    async fn name(&mut self, key: usize) -> Name;

    /// Ends a permit's lease while its holder still runs, and lets the store notice.
    async fn expire(&mut self, key: usize, name: &Name, permit: &Permit, listed: bool);

    /// Deletes the token counter of a key, as its TTL does when the key is not used.
    async fn expire_token(&mut self, key: usize);
}

/// A store in memory, a new one for each case. Its permits and waiters have empty names.
#[derive(Default)]
pub(crate) struct Memory(MemorySemaphore);

impl Memory {
    /// The immediate answer to a claim for the largest limit as a whole, which joins the queue if no
    /// more than `queued` claims wait there. `None`: it waits.
    fn answer(&self, key: usize, queued: Option<u32>) -> Option<Result<Permit, AcquireError>> {
        let claim = self
            .claim(key)
            .with_limit(MAX_WEIGHT)
            .with_weight(MAX_WEIGHT);
        let claim = match queued {
            Some(queued) => claim.with_wait(LONG_WAIT).with_max_waiting(queued + 1),
            None => claim,
        };
        self.0.acquire(claim).now_or_never()
    }
}

impl Driver for Memory {
    fn store(&self, process: usize) -> &dyn Semaphore {
        assert!(process < PROCESSES);
        &self.0
    }

    fn claim(&self, key: usize) -> Claim {
        Claim::new(key as u64)
    }

    async fn inspect(&mut self, key: usize) -> (u32, Vec<Name>) {
        let held = match self.answer(key, None) {
            Some(Ok(_)) => 0,
            Some(Err(AcquireError::Full { held, .. })) => held,
            answer => panic!("{answer:?}"),
        };
        let full = |length| {
            matches!(
                self.answer(key, Some(length)),
                Some(Err(AcquireError::QueueFull))
            )
        };
        let length = (0..)
            .find(|length| !full(*length))
            .expect("the queue has an end");
        (held, vec![Name::new(); length as usize])
    }

    async fn name(&mut self, _: usize) -> Name {
        Name::new()
    }

    /// A permit in memory has no lease. The bound of how long it is held has the same effect.
    async fn expire(&mut self, _: usize, _: &Name, permit: &Permit, _: bool) {
        end(permit).await;
    }

    async fn expire_token(&mut self, _: usize) {}
}

/// Ends a permit by the bound of how long it is held.
pub(crate) async fn end(permit: &Permit) {
    permit.end_after(Duration::ZERO);
    permit.lost().await;
}
