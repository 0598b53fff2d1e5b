//! One case: the same steps for the store and for the model, compared after each.

use crate::{
    driver::{Driver, Name},
    model::{Id, Model},
    op::{KEYS, Op},
    waiter::Waiter,
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

/// A clone of a permit.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) id: Id,
    pub(crate) key: usize,
    pub(crate) name: Name,
    pub(crate) permit: Permit,
}

/// A store, its model, and the permits and waiters of this process.
pub(crate) struct Case<'a, W> {
    pub(crate) driver: &'a mut W,
    pub(crate) models: [Model; KEYS],
    pub(crate) handles: Vec<Handle>,
    pub(crate) waiters: Vec<Waiter>,
    /// The last token of each key.
    pub(crate) tokens: [Option<u64>; KEYS],
    /// Permits that ended before their release, so that they may be lost.
    pub(crate) ended: HashSet<Id>,
    pub(crate) ids: RangeFrom<Id>,
}

/// Runs the steps, and drops all permits and waiters at the end.
pub(crate) async fn run<W: Driver>(driver: &mut W, ops: Vec<Op>) -> Outcome {
    let mut case = Case {
        driver,
        models: Default::default(),
        handles: Vec::new(),
        waiters: Vec::new(),
        tokens: [None; KEYS],
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

impl<W: Driver> Case<'_, W> {
    async fn step(&mut self, op: Op) -> Outcome {
        match op {
            Op::Acquire(spec) => self.acquire(spec).await?,
            Op::Cancel(index) => self.cancel(index),
            Op::Release(index) => self.release(index).await?,
            Op::Drop(index) => self.drop(index),
            Op::Clone(index) => self.clone(index),
            Op::End(index) => self.end(index).await,
            Op::Expire(index, listed) => self.expire(index, listed).await,
            Op::ExpireToken(key) => self.driver.expire_token(key).await,
        }
        for key in 0..KEYS {
            self.grant_waiters(key).await?;
        }
        Ok(())
    }

    /// Holders and waiters are those of the model, and no other permit is lost.
    async fn check(&mut self) -> Outcome {
        for key in 0..KEYS {
            self.check_key(key).await?;
        }
        let sound = |handle: &&Handle| !self.ended.contains(&handle.id);
        for Handle { permit, .. } in self.handles.iter().filter(sound) {
            prop_assert!(!permit.is_lost(), "{:?} is lost", permit);
        }
        for waiter in &self.waiters {
            prop_assert!(
                !waiter.is_finished(),
                "a waiter finished before it was granted"
            );
        }
        Ok(())
    }

    async fn check_key(&mut self, key: usize) -> Outcome {
        let model = &self.models[key];
        let waiter = |id: &Id| self.waiters.iter().find(|waiter| waiter.id == *id);
        let queue = model.queue.iter().filter_map(|(id, _)| waiter(id));
        let expected = (
            model.held(),
            queue.map(|waiter| waiter.name.clone()).collect(),
        );
        let (start, mut seen) = (Instant::now(), self.driver.inspect(key).await);
        while seen != expected && start.elapsed() < BOUND {
            tokio::task::yield_now().await;
            seen = self.driver.inspect(key).await;
        }
        prop_assert_eq!(seen, expected, "units held, and the queue, of key {}", key);
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
