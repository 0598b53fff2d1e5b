//! The stores, and what can be seen of them from outside.

use crate::op::{LONG, PROCESSES};
use futures_util::FutureExt;
use std::time::Duration;
use tower_semaphore::{
    AcquireError, Claim, MemorySemaphore, Permit, Semaphore, semaphore::MAX_WEIGHT,
};

/// The name by which a store knows a permit, and a claim in the line.
pub(crate) type Name = Vec<u8>;

/// A store with the means to look into it.
pub(crate) trait World {
    /// The store as one of the processes that share it has it.
    fn store(&self, process: usize) -> &dyn Semaphore;

    /// A claim for a key that no other case has.
    fn claim(&self, key: usize) -> Claim;

    /// How many units of a key are held, and who waits for it.
    async fn look(&mut self, key: usize) -> (u32, Vec<Name>);

    /// The name of the claim that came last, once it is granted or stands in the line.
    async fn name(&mut self, key: usize) -> Name;

    /// Ends a permit's lease, although its holder still runs, and lets the store find out.
    async fn expire(&mut self, key: usize, name: &Name, permit: &Permit, listed: bool);

    /// Does what time does to the counter of a key that nobody asks for.
    async fn forget(&mut self, key: usize);
}

/// A store in memory, of which there is one for each case. It names nobody.
#[derive(Default)]
pub(crate) struct Memory(MemorySemaphore);

impl Memory {
    /// What a claim is told at once that fits only if nothing is held, and waits if only so many
    /// do before it.
    fn told(&self, key: usize, longest: Option<usize>) -> Option<Result<Permit, AcquireError>> {
        let claim = self
            .claim(key)
            .with_limit(MAX_WEIGHT)
            .with_weight(MAX_WEIGHT);
        let claim = match longest {
            Some(longest) => claim.with_wait(LONG).with_max_waiting(longest + 1),
            None => claim,
        };
        self.0.acquire(claim).now_or_never()
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

    async fn look(&mut self, key: usize) -> (u32, Vec<Name>) {
        let held = match self.told(key, None) {
            Some(Ok(_)) => 0,
            Some(Err(AcquireError::Full { held, .. })) => held,
            told => panic!("{told:?}"),
        };
        let full = |length| {
            matches!(
                self.told(key, Some(length)),
                Some(Err(AcquireError::QueueFull))
            )
        };
        let length = (0..).find(|length| !full(*length)).expect("it ends");
        (held, vec![Name::new(); length])
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
