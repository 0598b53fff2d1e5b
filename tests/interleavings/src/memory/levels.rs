//! Claims under several limits, whose shards are locked together.
//!
//! Promises: P3.

use super::{shard::shard_number, store::MemorySemaphore};
use crate::{
    explore::{block_on, explore, join, poll},
    semaphore::{Acquire, Claim, Key, Permit, Semaphore},
    witness::Witness,
};
use loom::thread::{self, JoinHandle};
use std::{sync::Arc, task::Poll, time::Duration};

/// Two keys with limit 1.
struct Keys {
    store: MemorySemaphore,
    claims: [Claim; 2],
    witnesses: [Witness; 2],
}

impl Keys {
    /// Two keys in different shards. The shard of key 0 is locked first.
    fn new() -> Arc<Self> {
        Self::in_shards(|first, second| first < second)
    }

    /// The first two keys whose shard numbers satisfy `is_meant`.
    fn in_shards(is_meant: impl Fn(usize, usize) -> bool) -> Arc<Self> {
        let store = MemorySemaphore::new();
        let shard = |key: &Key| shard_number(store.0.place(key).0);
        let first = Key::from("a");
        let second = (0_u64..)
            .map(Key::from)
            .find(|key| is_meant(shard(&first), shard(key)));
        let keys = [first, second.expect("there are many")];
        let claim = |key| Claim::new(key).with_limit(1);
        Arc::new(Self {
            claims: keys.map(claim),
            store,
            witnesses: [Witness::new(1), Witness::new(1)],
        })
    }

    fn spawn<T: 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Self) -> T + 'static,
    ) -> JoinHandle<T> {
        let keys = Arc::clone(self);
        thread::spawn(move || run(&keys))
    }

    /// Acquires these keys in this order, all or none.
    fn try_all(&self, order: &[usize]) -> Option<Permit> {
        let claims: Vec<_> = order.iter().map(|&key| self.claims[key].clone()).collect();
        let before = self.witnesses.each_ref().map(Witness::last_token);
        let Poll::Ready(answer) = poll(&mut self.store.acquire_all(claims.into())) else {
            panic!("a claim without a wait is answered at once")
        };
        let permit = answer.ok()?;
        for (level, &key) in permit.levels().zip(order) {
            self.witnesses[key].acquired(1, level.token().expect("it is granted"), before[key]);
        }
        Some(permit)
    }

    fn release_all(&self, order: &[usize], permit: Permit) {
        order
            .iter()
            .for_each(|&key| self.witnesses[key].released(1));
        drop(permit);
    }

    fn use_all(&self, order: &[usize]) {
        if let Some(permit) = self.try_all(order) {
            self.release_all(order, permit);
        }
    }

    fn take(&self, key: usize) -> Option<Permit> {
        self.try_all(&[key])
    }

    /// Begins a claim that joins the queue of the key if it has no room.
    fn join_queue(&self, key: usize) -> Acquire {
        let claim = self.claims[key].clone().with_wait(Duration::from_secs(60));
        self.store.acquire(claim)
    }

    /// Waits for the permit of the key, and releases it.
    fn wait_and_release(&self, key: usize, acquire: Acquire) {
        let permit = block_on(acquire).expect("it is granted");
        // The greatest token when the claim began is not known here. Any token is greater than 0.
        self.witnesses[key].acquired(1, permit.token().expect("it has one"), 0);
        self.release_all(&[key], permit);
    }

    fn assert_free(&self) {
        assert!(self.try_all(&[0, 1]).is_some());
        for key in [0, 1] {
            // The claim above is still counted, and nothing else is.
            assert_eq!(self.witnesses[key].held(), 1, "all or none");
        }
    }
}

#[test]
fn two_claims_in_opposite_orders_end() {
    explore(|| {
        let keys = Keys::new();
        let others = [[0, 1], [1, 0]].map(|order| keys.spawn(move |keys| keys.use_all(&order)));
        join(others);
        keys.assert_free();
    });
}

/// A claim for both keys, beside a claim for key 0 alone and a release of key 1.
#[test]
fn a_claim_of_one_level_beside_a_claim_of_two_leaves_both_keys_free() {
    explore(|| {
        let keys = Keys::new();
        let held = keys.take(1).expect("it is free");
        let both = keys.spawn(|keys| keys.try_all(&[0, 1]));
        let one = keys.spawn(|keys| keys.take(0));
        keys.release_all(&[1], held);
        let ([both], [one]) = (join([both]), join([one]));
        if let Some(permit) = both {
            keys.release_all(&[0, 1], permit);
        }
        if let Some(permit) = one {
            keys.release_all(&[0], permit);
        }
        keys.assert_free();
    });
}

/// A claim that locks both keys must not take the grant away from a waiter of one key.
#[test]
fn a_waiter_beside_a_claim_of_two_levels_is_granted() {
    explore(|| {
        let keys = Keys::new();
        let held = keys.take(0).expect("it is free");
        let joins = keys.spawn(|keys| keys.join_queue(0));
        let both = keys.spawn(|keys| keys.try_all(&[1, 0]));
        keys.release_all(&[0], held);
        let ([acquire], [both]) = (join([joins]), join([both]));
        if let Some(permit) = both {
            keys.release_all(&[1, 0], permit);
        }
        keys.wait_and_release(0, acquire);
        keys.assert_free();
    });
}

/// Both keys are in one shard, so each claim must take the shard's lock only once.
#[test]
fn two_keys_of_one_shard_are_locked_once() {
    explore(|| {
        let keys = Keys::in_shards(|first, second| first == second);
        let other = keys.spawn(|keys| keys.use_all(&[0, 1]));
        keys.use_all(&[1, 0]);
        join([other]);
        keys.assert_free();
    });
}
