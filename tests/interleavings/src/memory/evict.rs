//! A shard is full of idle entries, so the entry of one more key is removed (evicted) when it becomes idle, while
//! claims for it come. The next claim gets a new entry, whose tokens continue.
//!
//! Promises: P1, P5, P11.

use super::{fixture::Fixture, shard::IDLE_CAPACITY, store::MemorySemaphore};
use crate::{
    explore::{explore, explore_once, join, poll},
    semaphore::{Claim, Key, Semaphore, StoredKey},
};
use std::{
    mem,
    sync::{Arc, LazyLock, Mutex},
};

/// Keys of shard 0: one more than the shard keeps when they are idle. The hashes have the same seed in the whole
/// process, so these keys are in shard 0 in every scenario.
static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let found = Arc::new(Mutex::new(Vec::new()));
    let keys = Arc::clone(&found);
    explore_once(move || {
        let store = MemorySemaphore::new();
        // Shard 0 gets only a part of these keys. The assertion below checks that it gets enough.
        let permits: Vec<_> = (0..8_000).map(|key: u64| touch(&store, key)).collect();
        let stored = store.0.shards[0].keys_in_table().into_iter();
        *keys.lock().expect("one thread") = stored.map(whole).collect();
        // Leaked, because the releases would exceed loom's bound on the steps of a thread.
        mem::forget(permits);
    });
    let mut keys = found.lock().expect("one thread").split_off(0);
    assert!(keys.len() > IDLE_CAPACITY, "{} keys", keys.len());
    keys.truncate(IDLE_CAPACITY + 1);
    keys
});

fn whole(key: StoredKey) -> Key {
    match key {
        StoredKey::Whole { key } => key,
        StoredKey::Hashed { hash } => panic!("{hash} is a number"),
    }
}

/// Claims a key once. The result holds the permit.
fn touch(store: &MemorySemaphore, key: impl Into<Key>) -> impl Sized {
    poll(&mut store.acquire(Claim::new(key).with_limit(1)))
}

/// A store in which the shard of the fixture's key is full of idle keys.
fn full_shard() -> Arc<Fixture> {
    let (key, others) = KEYS.split_last().expect("there are keys");
    let fixture = Fixture::with_key(key.clone(), 1);
    for other in others {
        drop(touch(&fixture.store, other.clone()));
    }
    fixture
}

/// Asserts that the shard does not exceed its allowance of idle entries.
fn assert_evicted(fixture: &Fixture) {
    let keys = fixture.store.0.shards[0].keys_in_table();
    assert!(keys.len() <= IDLE_CAPACITY, "an idle entry is left behind");
}

#[test]
fn a_claim_meets_the_eviction_of_its_entry() {
    LazyLock::force(&KEYS);
    explore(|| {
        let fixture = full_shard();
        let held = fixture.acquire(1);
        let other = fixture.spawn(|fixture| drop(fixture.try_acquire(1)));
        drop(held);
        join([other]);
        assert_evicted(&fixture);
        fixture.assert_free();
    });
}

#[test]
fn a_claim_that_waits_meets_the_eviction_of_its_entry() {
    LazyLock::force(&KEYS);
    explore(|| {
        let fixture = full_shard();
        let held = fixture.acquire(1);
        let waiter = fixture.spawn(|fixture| fixture.acquire(1));
        drop(held);
        drop(join([waiter]));
        assert_evicted(&fixture);
        fixture.assert_free();
    });
}

#[test]
fn a_waiter_that_leaves_meets_the_eviction_of_its_entry() {
    LazyLock::force(&KEYS);
    explore(|| {
        let fixture = full_shard();
        let held = fixture.acquire(1);
        let waiting = fixture.join_queue(1);
        let leaves = fixture.spawn(|_| drop(waiting));
        drop(held);
        join([leaves]);
        assert_evicted(&fixture);
        fixture.assert_free();
    });
}
