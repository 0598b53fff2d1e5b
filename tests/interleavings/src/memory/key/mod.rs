//! The semaphore of one key in its shard, which takes fewer steps than a whole store. So three threads can run in every
//! order of their steps.

mod counts;
mod retire;
mod waiting;

use super::{
    entry::{Counts, Entry},
    grant::{MemoryLevel, permit},
    holders::Details,
    queue,
    shard::{IDLE_CAPACITY, Shard},
};
use crate::{
    explore::block_on,
    semaphore::{Claim, Few, Pause, Permit, PermitEnd, TakenUnits},
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

/// A wait that never ends, because the clock stands still.
const WAIT: Duration = Duration::from_secs(60);

/// The serial number of the next waiting claim.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Releases units that a permit of the scenario had.
fn free(entry: &mut Entry, weight: u32, counts: &mut Counts) {
    let taken = TakenUnits {
        weight,
        ..TakenUnits::default()
    };
    assert!(entry.free(taken, PermitEnd::Released, counts).is_none());
}

/// The hash of the key. In these scenarios a hash identifies a key.
const HASH: u64 = 0;

struct Key {
    shard: Arc<Shard>,
    witness: Witness,
    limit: u32,
}

/// A claim in the queue.
struct Waiting {
    permit: oneshot::Receiver<Permit>,
    serial: u64,
    weight: u32,
    /// The greatest token when the claim began.
    before: u64,
}

impl Key {
    fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self {
            shard: Arc::new(Shard::new(&Arc::default())),
            witness: Witness::new(limit),
            limit,
        })
    }

    /// A key with `held` held units.
    fn with_held(limit: u32, held: u32) -> Arc<Self> {
        let key = Self::new(limit);
        assert!(key.take(held).is_ok());
        key
    }

    /// A key in a shard that is full of idle entries of other keys, with the hashes from 1 on.
    fn in_full_shard(limit: u32) -> Arc<Self> {
        let key = Self::new(limit);
        (1..=IDLE_CAPACITY as u64).for_each(|other| key.touch(other));
        key
    }

    /// Acquires a unit of another key and releases it.
    fn touch(&self, other: u64) {
        let claim = Claim::new(other).with_limit(1);
        let acquired = self.shard.acquire(other, &claim, None);
        assert!(acquired.is_ok());
        self.change_of(other, |entry, counts| free(entry, 1, counts));
    }

    /// Changes the entry of the key with this hash, if it exists.
    fn change_of<R>(
        &self,
        hash: u64,
        change: impl FnOnce(&mut Entry, &mut Counts) -> R,
    ) -> Option<R> {
        self.shard.change(hash, |entry| entry.hash == hash, change)
    }

    /// Changes the key's entry, if it exists.
    fn change<R>(&self, change: impl FnOnce(&mut Entry, &mut Counts) -> R) -> Option<R> {
        self.change_of(HASH, change)
    }

    /// Returns true if the shard has an entry for the key.
    fn is_kept(&self) -> bool {
        self.change(|_, _| ()).is_some()
    }

    fn set_limit(&self, limit: Option<u32>) {
        let decided = self.change(|entry, counts| entry.set_limit(limit, counts));
        queue::deliver(decided.unwrap_or_default());
    }

    /// Pauses the key for longer than the scenario takes.
    fn pause(&self) {
        let pause = Pause::new(WAIT / 2, "").expect("a time");
        self.shard.pause(HASH, &self.claim(1), &pause);
    }

    fn resume(&self) {
        let was_paused = self.change(|entry, _| entry.end_pause());
        assert_eq!(was_paused, Some(true));
    }

    fn claim(&self, weight: u32) -> Claim {
        let claim = Claim::new("a").with_limit(self.limit);
        claim.with_weight(weight).with_wait(WAIT)
    }

    /// Acquires units without waiting. The scenario must release them.
    fn take(&self, weight: u32) -> Result<(), queue::KeyRefusal> {
        let before = self.witness.last_token();
        let acquired = self.shard.acquire(HASH, &self.claim(weight), None)?;
        self.witness.acquired(weight, acquired.token, before);
        Ok(())
    }

    fn release(&self, weight: u32) {
        self.witness.released(weight);
        self.change(|entry, counts| free(entry, weight, counts));
    }

    /// Acquires units and releases them. Does nothing if they are not free.
    fn use_briefly(&self, weight: u32) {
        if self.take(weight).is_ok() {
            self.release(weight);
        }
    }

    fn join_queue(&self, weight: u32) -> Waiting {
        self.join_listed(weight, false)
    }

    /// Joins the queue. With `is_listed`, the waiter and its permit are listed for operators, who can revoke them.
    fn join_listed(&self, weight: u32, is_listed: bool) -> Waiting {
        let (before, claim) = (self.witness.last_token(), self.claim(weight));
        let (wait, serial) = (
            claim.wait().expect("it waits"),
            SERIAL.fetch_add(1, Relaxed),
        );
        let details = Details::new(&claim, serial, is_listed, &Arc::default());
        let (shard, granted) = (Arc::clone(&self.shard), Arc::clone(&details));
        let (sender, permit_of) = oneshot::channel();
        let deliver = move |decision| {
            let queue::Decision::Granted(acquired) = decision else {
                panic!("no limit is set");
            };
            let level = MemoryLevel::from_grant((HASH, &shard), acquired, &granted);
            drop(sender.send(permit(&[claim], Few::One([level]))));
        };
        let waiting = queue::QueuedClaim::new(wait, details, deliver);
        let joined = self.shard.join(
            HASH,
            &self.claim(weight),
            waiting,
            wait.time,
            wait.max_waiting,
        );
        assert!(joined.is_ok());
        Waiting {
            permit: permit_of,
            serial,
            weight,
            before,
        }
    }

    /// Waits for the grant. The scenario must release the units.
    fn wait(&self, waiting: Waiting) {
        let permit = block_on(waiting.permit).expect("it is granted");
        let (weight, before) = (waiting.weight, waiting.before);
        self.witness
            .acquired(weight, permit.token().expect("it has one"), before);
        mem::forget(permit);
    }

    /// Leaves the queue, or releases a permit that was granted in the meantime.
    fn leave(&self, waiting: Waiting) {
        drop(self.change(|entry, _| entry.queue.remove_waiter(waiting.serial)));
        drop(waiting);
    }

    fn spawn<T: 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Self) -> T + 'static,
    ) -> JoinHandle<T> {
        let key = Arc::clone(self);
        thread::spawn(move || run(&key))
    }

    /// Asserts, after all threads have ended, that everything is free, even for a claim without a wait.
    fn assert_free(&self) {
        assert_eq!(self.witness.held(), 0);
        assert_eq!(self.change(|entry, _| entry.held).unwrap_or(0), 0);
        assert_eq!(self.shard.busy_keys(), 0);
        assert!(self.take(self.limit).is_ok());
    }
}
