//! One case: the same steps for the store and for the model, compared after each.

use crate::{
    model::{Id, Model},
    op::{KEYS, Op},
    waiter::Waiter,
    world::{Name, World},
};
use proptest::{prelude::*, sample::Index};
use std::{
    collections::HashSet,
    ops::RangeFrom,
    time::{Duration, Instant},
};
use tower_semaphore::Permit;

pub(crate) type Outcome = Result<(), TestCaseError>;

/// How long the store may take to show what has happened.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// One of the clones of a permit.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) id: Id,
    pub(crate) key: usize,
    pub(crate) name: Name,
    pub(crate) permit: Permit,
}

/// A store, what the model says of it, and what this process has of it.
pub(crate) struct Case<'a, W> {
    pub(crate) world: &'a mut W,
    pub(crate) models: [Model; KEYS],
    pub(crate) handles: Vec<Handle>,
    pub(crate) waiters: Vec<Waiter>,
    /// The last of each key.
    pub(crate) tokens: [u64; KEYS],
    /// Those whose holders may have been told of a loss.
    pub(crate) ended: HashSet<Id>,
    pub(crate) ids: RangeFrom<Id>,
}

/// Runs the steps, and lets everything go at the end.
pub(crate) async fn run<W: World>(world: &mut W, ops: Vec<Op>) -> Outcome {
    let mut case = Case {
        world,
        models: Default::default(),
        handles: Vec::new(),
        waiters: Vec::new(),
        tokens: [0; KEYS],
        ended: HashSet::new(),
        ids: 0..,
    };
    for op in ops {
        case.step(op).await?;
        case.check().await?;
    }
    case.handles.clear();
    case.waiters.clear();
    case.models = Default::default();
    case.check().await
}

impl<W: World> Case<'_, W> {
    async fn step(&mut self, op: Op) -> Outcome {
        match op {
            Op::Acquire(ask) => self.acquire(ask).await?,
            Op::Cancel(index) => self.cancel(index),
            Op::Release(index) => self.release(index).await?,
            Op::Drop(index) => self.drop(index),
            Op::Clone(index) => self.clone(index),
            Op::End(index) => self.end(index).await,
            Op::Expire(index, listed) => self.expire(index, listed).await,
            Op::Forget(key) => self.world.forget(key).await,
        }
        for key in 0..KEYS {
            self.let_in(key).await?;
        }
        Ok(())
    }

    /// Who holds and who waits is who does so by the model, and nobody else lost anything.
    async fn check(&mut self) -> Outcome {
        for key in 0..KEYS {
            self.check_key(key).await?;
        }
        let sound = |handle: &&Handle| !self.ended.contains(&handle.id);
        for Handle { permit, .. } in self.handles.iter().filter(sound) {
            prop_assert!(!permit.is_lost(), "{:?} is lost", permit);
        }
        for waiter in &self.waiters {
            prop_assert!(!waiter.is_finished(), "a claim does not wait for its turn");
        }
        Ok(())
    }

    async fn check_key(&mut self, key: usize) -> Outcome {
        let model = &self.models[key];
        let waiter = |id: &Id| self.waiters.iter().find(|waiter| waiter.id == *id);
        let line = model.line.iter().filter_map(|(id, _)| waiter(id));
        let expected = (
            model.held(),
            line.map(|waiter| waiter.name.clone()).collect(),
        );
        let (start, mut seen) = (Instant::now(), self.world.look(key).await);
        while seen != expected && start.elapsed() < BOUND {
            tokio::task::yield_now().await;
            seen = self.world.look(key).await;
        }
        prop_assert_eq!(seen, expected, "units held, and the line, of key {}", key);
        Ok(())
    }

    pub(crate) fn choose(&self, index: Index) -> Option<usize> {
        let count = self.handles.len();
        (count > 0).then(|| index.index(count))
    }

    pub(crate) fn take(&mut self, index: Index) -> Option<Handle> {
        let handle = self.choose(index)?;
        Some(self.handles.swap_remove(handle))
    }
}
