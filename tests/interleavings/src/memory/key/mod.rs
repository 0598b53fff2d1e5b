//! The counters and the queue of one key, by themselves: fewer steps than through a store, so three
//! threads can be run in every order.

mod counts;
mod retire;
mod waiting;

use super::{
    grant::{Level, Wanted, permit},
    holders::Details,
    key_semaphore::{KeySemaphore, Refusal},
    limits::Limits,
    queue,
    shard::{Entry, Shard},
};
use crate::{
    explore::block_on,
    semaphore::{Claim, Few, Permit, Units},
    sync::oneshot,
    witness::Witness,
};
use loom::thread::{self, JoinHandle};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

const WAIT: Duration = Duration::from_secs(60);

/// The serial of the next claim that waits.
static SERIAL: AtomicU64 = AtomicU64::new(0);

struct Key {
    entry: Arc<Entry>,
    witness: Witness,
    limit: u32,
}

/// A claim in the queue.
struct Waiting {
    permit: oneshot::Receiver<Permit>,
    serial: u64,
    weight: u32,
    /// The greatest token when it began.
    before: u64,
}

impl Key {
    fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self {
            entry: Arc::new(Shard::default()).entry((0, &Claim::new("a")), &Limits::default()),
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

    fn semaphore(&self) -> &KeySemaphore {
        &self.entry.semaphore
    }

    fn claim(&self, weight: u32) -> Claim {
        let claim = Claim::new("a").with_limit(self.limit);
        claim.with_weight(weight).with_wait(WAIT)
    }

    fn units(&self, weight: u32) -> Units {
        self.claim(weight).units().expect("it fits")
    }

    fn take(&self, weight: u32) -> Result<(), Refusal> {
        let before = self.witness.last_token();
        let acquired = self.semaphore().try_acquire(self.units(weight))?;
        self.witness.acquired(weight, acquired.token, before);
        Ok(())
    }

    fn release(&self, weight: u32) {
        self.witness.released(weight);
        self.semaphore().release(weight);
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
        let serial = SERIAL.fetch_add(1, Relaxed);
        self.join_as(
            weight,
            Details::new(&Claim::new("a"), serial, false, &Arc::default()),
        )
    }

    fn join_as(&self, weight: u32, details: Arc<Details>) -> Option<Waiting> {
        let before = self.witness.last_token();
        let (claim, entry) = (self.claim(weight), Arc::clone(&self.entry));
        let (units, wait) = (self.units(weight), claim.wait().expect("it waits"));
        let (serial, listed) = (details.serial, Arc::clone(&details));
        let (sender, receiver) = oneshot::channel();
        let deliver = move |decided: Result<_, _>| {
            let acquired = decided.expect("no limit is set");
            let listed = Some(listed).filter(|details| details.is_listed);
            let level = Level::new(Wanted { entry, units }, acquired, listed);
            drop(sender.send(permit(&[Claim::new("a")], Few::One([level]))));
        };
        let waiting = queue::Waiting::new(&claim, wait, details, deliver);
        let is_live = self.semaphore().enqueue(waiting, wait.max_waiting);
        let is_live = !matches!(is_live, Err(Refusal::Retired));
        is_live.then_some(Waiting {
            permit: receiver,
            serial,
            weight,
            before,
        })
    }

    /// Waits for the grant. The scenario releases its units itself.
    fn wait(&self, waiting: Waiting) {
        let permit = block_on(waiting.permit).expect("it is granted");
        let (weight, before) = (waiting.weight, waiting.before);
        self.witness
            .acquired(weight, permit.token().expect("it has one"), before);
        mem::forget(permit);
    }

    /// Leaves the queue, or releases what was granted meanwhile.
    fn leave(&self, waiting: Waiting) {
        self.entry.cancel(waiting.serial);
        drop(waiting);
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
        assert_eq!(self.semaphore().held(), 0);
        assert!(self.take(self.limit).is_ok());
    }
}
