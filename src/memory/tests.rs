//! What only the inside can tell: how much is kept.

use super::{MemorySemaphore, SHARDS, shard::KEPT};
use crate::semaphore::{Claim, Key, Permit, Semaphore};
use std::{
    collections::HashSet,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

fn take(store: &MemorySemaphore, key: u64) -> Permit {
    let acquire = pin!(store.acquire(Claim::new(key).with_limit(1)));
    match acquire.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.expect("there is room"),
        Poll::Pending => panic!("it does not wait"),
    }
}

fn slots(store: &MemorySemaphore) -> HashSet<Key> {
    store
        .0
        .shards
        .iter()
        .flat_map(|shard| shard.names())
        .collect()
}

#[test]
fn idle_keys_are_kept_up_to_a_bound() {
    let store = MemorySemaphore::new();
    let held: Vec<Permit> = (0..50_000).map(|key| take(&store, key)).collect();
    assert_eq!((store.keys(), slots(&store).len()), (50_000, 50_000));
    drop(held);
    assert_eq!(store.keys(), 0);
    assert!((1..=SHARDS * KEPT).contains(&slots(&store).len()));
}

#[test]
fn keys_that_are_kept_make_room_for_others() {
    let store = MemorySemaphore::new();
    (0..1_000_000).for_each(|key| drop(take(&store, key)));
    let slots = slots(&store);
    assert!((0..100_000).all(|key: u64| !slots.contains(&key.into())));
    assert!(slots.len() <= SHARDS * KEPT);
}

#[test]
fn a_store_that_is_dropped_takes_its_keys_along() {
    let store = MemorySemaphore::new();
    let held: Vec<Permit> = (0..10_000).map(|key| take(&store, key)).collect();
    let shards = store.0.shards.each_ref().map(Arc::downgrade);
    drop((store, held));
    assert!(shards.iter().all(|shard| shard.upgrade().is_none()));
}
