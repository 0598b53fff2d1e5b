//! The counters and the queue of one key, by themselves: fewer steps than through a store, so three
//! threads can be run in every order.

mod counts;
mod retire;
mod waiting;

use super::{
    holders::Details,
    key_semaphore::{KeySemaphore, Refusal},
    queue::Position,
};
use crate::{
    explore::block_on,
    semaphore::{Claim, Units, Wait},
    witness::Witness,
};
use loom::thread::{self, JoinHandle};
use std::{sync::Arc, time::Duration};

const WAIT: Duration = Duration::from_secs(60);

struct Key {
    semaphore: KeySemaphore,
    witness: Witness,
    limit: u32,
}

/// A claim in the queue.
struct Waiting {
    position: Position,
    weight: u32,
    /// The greatest token when it began.
    before: u64,
}

impl Key {
    fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self {
            semaphore: KeySemaphore::new(0),
            witness: Witness::new(limit),
            limit,
        })
    }

    /// A key of which `held` units are held.
    fn with_held(limit: u32, held: u32) -> Arc<Self> {
        let key = Self::new(limit);
        assert!(key.take(held).is_ok());
        key
    }

    fn claim(&self, weight: u32) -> (Units, Wait) {
        let claim = Claim::new("a").with_limit(self.limit).with_weight(weight);
        let wait = claim.clone().with_wait(WAIT).wait().expect("it waits");
        (claim.units().expect("it fits"), wait)
    }

    fn take(&self, weight: u32) -> Result<(), Refusal> {
        let before = self.witness.last_token();
        let acquired = self.semaphore.try_acquire(self.claim(weight).0)?;
        self.witness.acquired(weight, acquired.token, before);
        Ok(())
    }

    fn release(&self, weight: u32) {
        self.witness.released(weight);
        self.semaphore.release(weight);
    }

    /// Acquires units and releases them, if there are any.
    fn use_briefly(&self, weight: u32) {
        if self.take(weight).is_ok() {
            self.release(weight);
        }
    }

    /// Joins the queue of an entry that is not retired.
    fn join_queue(&self, weight: u32) -> Waiting {
        self.try_join_queue(weight).expect("it is not retired")
    }

    /// Joins the queue; `None` if the entry is retired.
    fn try_join_queue(&self, weight: u32) -> Option<Waiting> {
        let before = self.witness.last_token();
        let (units, wait) = self.claim(weight);
        let details = Details::new(&Claim::new("a"), 0, false);
        let Ok(position) = self.semaphore.enqueue(units, wait, details) else {
            panic!("the queue is not full");
        };
        position.map(|position| Waiting {
            position,
            weight,
            before,
        })
    }

    /// Waits for the grant.
    fn wait(&self, waiting: Waiting) {
        let acquired = block_on(waiting.position.granted).expect("it is granted");
        self.witness
            .acquired(waiting.weight, acquired.token, waiting.before);
    }

    /// Leaves the queue, or releases what was granted meanwhile.
    fn leave(&self, waiting: &Waiting) {
        self.semaphore.cancel(&waiting.position, waiting.weight);
    }

    fn spawn<T: 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Self) -> T + 'static,
    ) -> JoinHandle<T> {
        let key = Arc::clone(self);
        thread::spawn(move || run(&key))
    }

    /// When all threads have ended: everything is free, also for a claim without a wait.
    fn assert_free(&self) {
        assert_eq!(self.witness.held(), 0);
        assert!(!self.semaphore.is_busy());
        assert!(self.take(self.limit).is_ok());
    }
}
