//! One case: the same steps for the store and for the model, compared after each.

use crate::{
    model::{Id, Model},
    op::{KEYS, Op},
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

/// How long the store may take to show what a drop has done.
const BOUND: Duration = Duration::from_secs(5);

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
    /// The last of each key.
    pub(crate) tokens: [u64; KEYS],
    /// Those whose holders may have been told of a loss.
    pub(crate) ended: HashSet<Id>,
    pub(crate) ids: RangeFrom<Id>,
}

/// Runs the steps.
pub(crate) async fn run<W: World>(world: &mut W, ops: Vec<Op>) -> Outcome {
    let mut case = Case {
        world,
        models: Default::default(),
        handles: Vec::new(),
        tokens: [0; KEYS],
        ended: HashSet::new(),
        ids: 0..,
    };
    for op in ops {
        case.step(op).await?;
        case.check().await?;
    }
    Ok(())
}

impl<W: World> Case<'_, W> {
    async fn step(&mut self, op: Op) -> Outcome {
        match op {
            Op::Acquire(process, key, want) => return self.acquire(process, key, want).await,
            Op::Release(index) => return self.release(index).await,
            Op::Drop(index) => self.drop(index),
            Op::Clone(index) => self.clone(index),
            Op::End(index) => self.end(index).await,
            Op::Expire(index, listed) => self.expire(index, listed).await,
            Op::Forget(key) => self.world.forget(key).await,
        }
        Ok(())
    }

    /// What the model holds is held, neither more nor less, and nobody else lost anything.
    async fn check(&mut self) -> Outcome {
        for key in 0..KEYS {
            self.check_units(key).await?;
        }
        let sound = |handle: &&Handle| !self.ended.contains(&handle.id);
        for Handle { permit, .. } in self.handles.iter().filter(sound) {
            prop_assert!(!permit.is_lost(), "{:?} is lost", permit);
        }
        Ok(())
    }

    async fn check_units(&mut self, key: usize) -> Outcome {
        let (start, expected) = (Instant::now(), self.models[key].held());
        let mut held = self.world.held(key).await;
        while held != expected && start.elapsed() < BOUND {
            tokio::task::yield_now().await;
            held = self.world.held(key).await;
        }
        prop_assert_eq!(held, expected, "units of key {}", key);
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
