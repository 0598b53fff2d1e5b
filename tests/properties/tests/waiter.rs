//! Steps of waiters.

use crate::{
    case::{BOUND, Case, Outcome},
    driver::{Driver, Name},
    model::{Id, Units},
};
use proptest::{prelude::*, sample::Index};
use tokio::{task::JoinHandle, time::timeout};
use tower_semaphore::{Acquire, AcquireError, Permit};

/// A claim in the queue. Dropped, it is cancelled.
pub(crate) struct Waiter {
    pub(crate) id: Id,
    pub(crate) key: usize,
    pub(crate) name: Name,
    acquire: JoinHandle<Result<Permit, AcquireError>>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.acquire.abort();
    }
}

impl Waiter {
    /// Spawns a claim, and returns once it is in the queue.
    pub(crate) async fn enqueue(
        driver: &mut impl Driver,
        id: Id,
        key: usize,
        acquire: Acquire,
    ) -> Self {
        let acquire = tokio::spawn(acquire);
        Self {
            id,
            key,
            name: driver.name(key).await,
            acquire,
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.acquire.is_finished()
    }

    /// The permit, or `None` if the wait timed out. Fails if there is no answer within the bound.
    pub(crate) async fn answer(mut self) -> Result<Option<Permit>, TestCaseError> {
        let fail = |why: String| Err(TestCaseError::fail(why));
        match timeout(BOUND, &mut self.acquire).await {
            Ok(Ok(Ok(permit))) => Ok(Some(permit)),
            Ok(Ok(Err(AcquireError::TimedOut))) => Ok(None),
            Ok(Ok(Err(error))) => fail(format!("a waiter was refused: {error:?}")),
            Ok(Err(panic)) => fail(panic.to_string()),
            Err(_) => fail("a waiter at the head is not granted, with room for it".to_owned()),
        }
    }
}

impl<W: Driver> Case<'_, W> {
    pub(crate) fn cancel(&mut self, index: Index) {
        if !self.waiters.is_empty() {
            let waiter = index.index(self.waiters.len());
            let waiter = self.waiters.remove(waiter);
            self.models[waiter.key].end(waiter.id);
        }
    }

    /// Grants the waiters that the model grants, in their order.
    pub(crate) async fn grant_waiters(&mut self, key: usize) -> Outcome {
        while let Some((id, units)) = self.models[key].next() {
            let position = self.waiters.iter().position(|waiter| waiter.id == id);
            let waiter = self
                .waiters
                .remove(position.expect("every waiter of the model is in the case"));
            let name = waiter.name.clone();
            let permit = waiter.answer().await?;
            let permit = permit.ok_or_else(|| TestCaseError::fail("a long wait timed out"))?;
            self.hold_granted(id, key, units, name, permit)?;
        }
        Ok(())
    }

    fn hold_granted(
        &mut self,
        id: Id,
        key: usize,
        units: Units,
        name: Name,
        permit: Permit,
    ) -> Outcome {
        // The message of a wake-up does not say how many units remain, so the permit reports 0.
        let remaining = units.limit - self.models[key].held();
        prop_assert!(
            [0, remaining].contains(&permit.remaining()),
            "{}",
            permit.remaining()
        );
        self.hold(id, key, units, name, permit)
    }
}
