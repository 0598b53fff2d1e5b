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
    /// A claim that was just made, once it stands in the line.
    pub(crate) async fn stand(
        world: &mut impl World,
        id: Id,
        key: usize,
        acquire: Acquire,
    ) -> Self {
        let acquire = tokio::spawn(acquire);
        Self {
            id,
            key,
            name: world.name(key).await,
            acquire,
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.acquire.is_finished()
    }

    /// What it is told, which must be soon: its permit, or that its wait is over.
    pub(crate) async fn answer(mut self) -> Result<Option<Permit>, TestCaseError> {
        let fail = |why: String| Err(TestCaseError::fail(why));
        match timeout(BOUND, &mut self.acquire).await {
            Ok(Ok(Ok(permit))) => Ok(Some(permit)),
            Ok(Ok(Err(AcquireError::TimedOut))) => Ok(None),
            Ok(Ok(Err(error))) => fail(format!("not granted in its turn: {error:?}")),
            Ok(Err(panic)) => fail(panic.to_string()),
            Err(_) => fail("a claim waits although its turn has come".to_owned()),
        }
    }
}

impl<W: World> Case<'_, W> {
    pub(crate) fn cancel(&mut self, index: Index) {
        if !self.waiters.is_empty() {
            let waiter = index.index(self.waiters.len());
            let waiter = self.waiters.remove(waiter);
            self.models[waiter.key].end(waiter.id);
        }
    }

    /// Those whose turn has come are granted, in their order.
    pub(crate) async fn let_in(&mut self, key: usize) -> Outcome {
        while let Some((id, want)) = self.models[key].next() {
            let place = self.waiters.iter().position(|waiter| waiter.id == id);
            let waiter = self.waiters.remove(place.expect("all who wait are here"));
            let name = waiter.name.clone();
            let permit = waiter.answer().await?;
            let permit = permit.ok_or_else(|| TestCaseError::fail("its wait is not over yet"))?;
            self.enter(id, key, want, name, permit)?;
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
