//! Claims under several limits, whose entries are locked together.

use super::{
    grant::{Level, Wanted, acquire_all, permit},
    holders::Details,
    key_semaphore::Refusal,
    limits::Limits,
    queue::Waiting,
    shard::{Entry, IDLE_CAPACITY, Shard},
};
use crate::{
    explore::{block_on, explore, explore_most, join},
    semaphore::{Claim, Few, Permit},
    sync::oneshot,
    witness::Witness,
};
use loom::thread::{self, JoinHandle};
use std::{slice, sync::Arc, time::Duration};

/// Two keys of limit 1.
struct Keys {
    claims: [Claim; 2],
    entries: [Arc<Entry>; 2],
    witnesses: [Witness; 2],
}

impl Keys {
    /// The entry of key 0 is locked first: in every execution, wherever it lies in memory.
    fn new() -> Arc<Self> {
        let shard = Arc::new(Shard::default());
        let mut both = [0_u64, 1].map(|key| {
            let claim = Claim::new(key)
                .with_limit(1)
                .with_wait(Duration::from_secs(60));
            (shard.entry((key, &claim), &Limits::default()), claim)
        });
        both.sort_by_key(|(entry, _)| Arc::as_ptr(entry));
        let [first, second] = both;
        Arc::new(Self {
            claims: [first.1, second.1],
            entries: [first.0, second.0],
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

    fn entry(&self, claim: &Claim) -> Arc<Entry> {
        let is_second = claim == &self.claims[1];
        Arc::clone(&self.entries[usize::from(is_second)])
    }

    /// Acquires of these keys in this order, all or none.
    fn try_all(&self, order: &[usize]) -> Option<Permit> {
        let claims: Vec<_> = order.iter().map(|&key| self.claims[key].clone()).collect();
        let before = self.witnesses.each_ref().map(Witness::last_token);
        let permit = try_all(&claims, |claim| self.entry(claim))?;
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
        let (entry, claim) = (&self.entries[key], &self.claims[key]);
        let before = self.witnesses[key].last_token();
        let permit = try_all(slice::from_ref(claim), |_| Arc::clone(entry))?;
        let token = permit.token().expect("it is granted");
        self.witnesses[key].acquired(1, token, before);
        Some(permit)
    }

    fn join_queue(&self, key: usize) -> oneshot::Receiver<Permit> {
        let (claim, entry) = (&self.claims[key], Arc::clone(&self.entries[key]));
        let (units, wait) = (claim.units().ok(), claim.wait());
        let (units, wait) = (units.expect("it fits"), wait.expect("it waits"));
        let (sender, permit) = oneshot::channel();
        let own = claim.clone();
        let deliver = move |decided: Result<_, _>| {
            let acquired = decided.expect("no limit is set");
            let level = Level::new(Wanted { entry, units }, acquired, None);
            drop(sender.send(super::grant::permit(&[own], Few::One([level]))));
        };
        let details = Details::new(claim, 0, false, &Arc::default());
        let waiting = Waiting::new(claim, wait, details, deliver);
        let semaphore = &self.entries[key].semaphore;
        let joined = semaphore.enqueue(waiting, wait.max_waiting);
        assert!(joined.is_ok());
        permit
    }

    /// Waits for the permit of the key, and releases it.
    fn wait_and_release(&self, key: usize, permit: oneshot::Receiver<Permit>) {
        let permit = block_on(permit).expect("it is granted");
        self.witnesses[key].acquired(1, permit.token().expect("it has one"), 0);
        self.release_all(&[key], permit);
    }

    fn assert_free(&self) {
        assert!(self.try_all(&[0, 1]).is_some());
        for key in [0, 1] {
            assert_eq!(self.witnesses[key].held(), 1, "all or none");
        }
    }
}

/// As the store does for claims that do not wait.
fn try_all(claims: &[Claim], entry: impl Fn(&Claim) -> Arc<Entry>) -> Option<Permit> {
    loop {
        let wanted = claims.iter().map(|claim| Wanted {
            entry: entry(claim),
            units: claim.checked_units(),
        });
        let wanted: Few<_> = wanted.collect();
        match acquire_all(&wanted) {
            Ok(acquired) => {
                let level = |at: usize, wanted| Level::new(wanted, acquired[at], None);
                return Some(permit(claims, wanted.map(level)));
            }
            Err((_, Refusal::Retired)) => {}
            Err(_) => {
                wanted
                    .iter()
                    .for_each(|wanted| wanted.entry.evict_if_idle());
                return None;
            }
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

/// Beside a claim for the wider limit alone, and a release of the narrower.
#[test]
fn a_claim_of_one_level_meets_one_of_two() {
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

/// The lock of several semaphores keeps no grant from a waiter of one of them.
#[test]
fn a_waiter_beside_a_claim_of_two_levels_is_granted() {
    explore(|| {
        let keys = Keys::new();
        let held = keys.take(0).expect("it is free");
        let joins = keys.spawn(|keys| keys.join_queue(0));
        let both = keys.spawn(|keys| keys.try_all(&[1, 0]));
        keys.release_all(&[0], held);
        let ([permit], [both]) = (join([joins]), join([both]));
        if let Some(permit) = both {
            keys.release_all(&[1, 0], permit);
        }
        keys.wait_and_release(0, permit);
        keys.assert_free();
    });
}

/// An entry that is retired when it is to be locked is looked up again.
#[test]
fn an_eviction_meets_a_claim_that_locks() {
    explore_most(|| {
        let shard = Arc::new(Shard::default());
        let claim = |key: u64| Claim::new(key).with_limit(1);
        let full: Vec<_> = (0..IDLE_CAPACITY as u64)
            .map(|key| shard.entry((key, &claim(key)), &Limits::default()))
            .collect();
        let lock = {
            let shard = Arc::clone(&shard);
            move || {
                try_all(&[claim(99)], |claim| {
                    shard.entry((99, claim), &Limits::default())
                })
                .map(|permit| permit.token().expect("it is granted"))
            }
        };
        let token = lock().expect("it is free");
        let other = thread::spawn(lock.clone());
        let _ = lock();
        let _ = join([other]);
        assert!(lock().expect("it is free") > token, "its tokens repeat");
        assert_eq!(shard.keys(), 0);
        drop(full);
    });
}
