//! Steps of those who wait.

use crate::{
    case::{BOUND, Case, Outcome},
    model::{Id, Want},
    world::{Name, World},
};
use proptest::{prelude::*, sample::Index};
use tokio::{task::JoinHandle, time::timeout};
use tower_semaphore::{Acquire, AcquireError, Permit};

/// A claim in the line. Dropped, it is cancelled.
pub(crate) struct Waiter {
    pub(crate) id: Id,
    key: usize,
    pub(crate) name: Name,
    acquire: JoinHandle<Result<Permit, AcquireError>>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.acquire.abort();
    }
}

impl Waiter {
    pub(crate) fn is_finished(&self) -> bool {
        self.acquire.is_finished()
    }
}

impl<W: World> Case<'_, W> {
    /// Waits until the claim stands in the line.
    pub(crate) async fn stand(&mut self, id: Id, key: usize, acquire: Acquire) {
        let acquire = tokio::spawn(acquire);
        let name = self.world.name(key).await;
        self.waiters.push(Waiter {
            id,
            key,
            name,
            acquire,
        });
    }

    pub(crate) fn cancel(&mut self, index: Index) {
        if !self.waiters.is_empty() {
            let waiter = index.index(self.waiters.len());
            let Waiter { id, key, .. } = self.waiters.remove(waiter);
            self.models[key].end(id);
        }
    }

    /// Those whose turn has come are granted, in their order.
    pub(crate) async fn let_in(&mut self, key: usize) -> Outcome {
        while let Some((id, want)) = self.models[key].next() {
            let place = self.waiters.iter().position(|waiter| waiter.id == id);
            let mut waiter = self.waiters.remove(place.expect("all who wait are here"));
            let Ok(answer) = timeout(BOUND, &mut waiter.acquire).await else {
                return Err(TestCaseError::fail(
                    "a claim waits although its turn has come",
                ));
            };
            let permit = answer.expect("it does not panic");
            let permit = permit.map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
            self.enter(id, key, want, waiter.name.clone(), permit)?;
        }
        Ok(())
    }

    fn enter(&mut self, id: Id, key: usize, want: Want, name: Name, permit: Permit) -> Outcome {
        // Who was told by a message was not told what remained, and says that nothing did.
        let remaining = want.limit - self.models[key].held();
        prop_assert!(
            [0, remaining].contains(&permit.remaining()),
            "{}",
            permit.remaining()
        );
        self.hold(id, key, want, name, permit)
    }
}
