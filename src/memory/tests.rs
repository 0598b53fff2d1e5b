//! How many entries a store keeps, how many units of a key are held, and the order of a queue. Unit tests, because the
//! public API does not show these.

use super::{
    holders::Details,
    queue::{Queue, QueuedClaim},
    shard::{IDLE_CAPACITY, SHARDS, Tables},
    store::MemorySemaphore,
};
use crate::semaphore::{AcquireError, Claim, Key, Operate, Permit, Policy, Semaphore, StoredKey};
use futures_util::FutureExt;
use std::{
    collections::HashSet,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

fn acquire(store: &MemorySemaphore, key: u64) -> Permit {
    let acquire = pin!(store.acquire(Claim::new(key).with_limit(1)));
    match acquire.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.expect("there is room"),
        Poll::Pending => panic!("a claim without a wait is answered at once"),
    }
}

fn keys_in_tables(store: &MemorySemaphore) -> HashSet<StoredKey> {
    let shards = store.0.shards.iter();
    shards.flat_map(|shard| shard.keys_in_table()).collect()
}

#[test]
fn idle_keys_are_kept_up_to_a_bound() {
    let store = MemorySemaphore::new();
    let held: Vec<Permit> = (0..50_000).map(|key| acquire(&store, key)).collect();
    assert_eq!(
        (store.busy_keys(), keys_in_tables(&store).len()),
        (50_000, 50_000)
    );
    drop(held);
    assert_eq!(store.busy_keys(), 0);
    assert!((1..=SHARDS * IDLE_CAPACITY).contains(&keys_in_tables(&store).len()));
}

#[test]
fn keys_that_a_wider_limit_refuses_are_not_kept() {
    let store = MemorySemaphore::new();
    let fleet = Claim::new("all").with_policy("fleet").with_limit(1);
    let _held = store.acquire(fleet.clone()).now_or_never();
    for key in 0..50_000u64 {
        let both = [Claim::new(key).with_limit(1), fleet.clone()];
        let refused = store.acquire_all(both.into()).now_or_never();
        assert!(refused.expect("an answer").is_err());
    }
    assert_eq!(store.busy_keys(), 1);
    // One more: the key `all`.
    assert!(keys_in_tables(&store).len() <= SHARDS * IDLE_CAPACITY + 1);
}

#[test]
fn idle_keys_make_room_for_recent_ones_and_tokens_still_grow() {
    let store = MemorySemaphore::new();
    let token_of = |key| acquire(&store, key).token();
    // More tokens than each shard grants to the keys below, so that a count that restarts would be smaller.
    let last = (0..100_000).map(|_| token_of(u64::MAX)).max();
    (0..1_000_000).for_each(|key| drop(acquire(&store, key)));
    assert!(Some(token_of(u64::MAX)) > last);
    let in_tables = keys_in_tables(&store);
    assert!((0..100_000).all(|key: u64| !in_tables.contains(&StoredKey::whole(key))));
    assert!(in_tables.len() <= SHARDS * IDLE_CAPACITY);
}

#[test]
fn recent_keys_are_kept() {
    let store = MemorySemaphore::new();
    (0..1_000).for_each(|key| drop(acquire(&store, key)));
    assert_eq!(keys_in_tables(&store).len(), 1_000);
}

/// Pauses a key for a time of Tokio's clock.
async fn pause(store: &MemorySemaphore, key: u64, time: Duration) {
    let paused = store.pause(&Policy::DEFAULT, &key.into(), time, "");
    paused.await.expect("it is paused");
}

#[tokio::test(start_paused = true)]
async fn paused_keys_are_kept_and_forgotten_when_the_pause_is_over() {
    let (store, minute) = (MemorySemaphore::new(), Duration::from_secs(60));
    for key in 0..50_000 {
        pause(&store, key, minute).await;
    }
    (50_000..200_000).for_each(|key| drop(acquire(&store, key)));
    let in_tables = keys_in_tables(&store);
    assert!((0..50_000).all(|key: u64| in_tables.contains(&StoredKey::whole(key))));
    // The paused keys, and at most the same number of idle ones.
    assert!(in_tables.len() <= 2 * 50_000 + SHARDS * IDLE_CAPACITY);
    assert_eq!(store.busy_keys(), 0);
    tokio::time::advance(minute).await;
    for key in 200_000..400_000 {
        pause(&store, key, Duration::from_millis(1)).await;
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    // A shard evicts before it inserts, so it may have one key more.
    let kept = keys_in_tables(&store).len();
    assert!(kept <= SHARDS * (IDLE_CAPACITY + 1), "{kept} are kept");
}

#[tokio::test(start_paused = true)]
async fn permits_still_count_after_pauses_and_evictions() {
    let store = MemorySemaphore::new();
    let held: Vec<Permit> = (0..20_000).map(|key| acquire(&store, key)).collect();
    for round in 0..4 {
        // Two thirds of these pauses are over when the claims below evict keys.
        for key in 0..40_000 {
            pause(&store, key, Duration::from_millis(1 + (key + round) % 3)).await;
        }
        tokio::time::advance(Duration::from_millis(2)).await;
        (40_000..90_000).for_each(|key| drop(acquire(&store, key)));
    }
    tokio::time::advance(Duration::from_millis(2)).await;
    let again = |key| store.acquire(Claim::new(key).with_limit(1)).now_or_never();
    for key in 0..20_000_u64 {
        let refused = again(key).expect("an answer");
        assert!(
            matches!(refused, Err(AcquireError::Full { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(store.busy_keys(), held.len());
    drop(held);
    assert_eq!(store.busy_keys(), 0);
    (0..40_000).for_each(|key| drop(acquire(&store, key)));
    (100_000..300_000).for_each(|key| drop(acquire(&store, key)));
    assert!(keys_in_tables(&store).len() <= SHARDS * IDLE_CAPACITY);
}

#[test]
fn a_dropped_store_leaves_no_reference_cycle() {
    let store = MemorySemaphore::new();
    let held: Vec<Permit> = (0..10_000).map(|key| acquire(&store, key)).collect();
    let shards = store.0.shards.each_ref().map(Arc::downgrade);
    drop((store, held));
    assert!(shards.iter().all(|shard| shard.upgrade().is_none()));
}

#[test]
fn no_more_units_are_reported_than_are_held() {
    let (store, over) = (MemorySemaphore::new(), AtomicBool::new(false));
    let one = || Claim::new("a").with_limit(1);
    let units = || {
        let counts = store.counts(&Policy::DEFAULT, &[StoredKey::whole("a")]);
        let counts = counts.now_or_never().expect("an answer");
        counts.expect("they are counted")[0].units
    };
    let most = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    drop(store.acquire(one()).now_or_never());
                }
            });
        }
        let most = (0..200_000).map(|_| units()).max();
        over.store(true, SeqCst);
        most
    });
    assert!(most <= Some(1), "{most:?} of 1");
}

#[test]
fn a_claim_that_meets_a_lock_is_granted_after_it() {
    let (store, key) = (MemorySemaphore::new(), Key::from("a"));
    for _ in 0..200 {
        let place = store.0.place(&key);
        let locked = Tables::lock([place].into_iter());
        let permit = thread::scope(|scope| {
            let claim = scope.spawn(|| store.acquire(Claim::new("a").with_limit(1)).now_or_never());
            // Long enough for most of the claims to meet the lock; each is granted in any case.
            thread::sleep(Duration::from_millis(1));
            drop(locked);
            claim.join().expect("no panic")
        });
        assert!(permit.expect("an answer").is_ok());
    }
}

fn waiting(flow: &str, serial: u64) -> QueuedClaim {
    let claim = Claim::new("a").with_flow(flow).with_wait(Duration::MAX);
    let details = Details::new(&claim, serial, false, &Arc::default());
    QueuedClaim::new(claim.wait().expect("it waits"), details, |_| ())
}

/// The flow of such a waiter has already paid for its turn, so the waiter's departure leaves no gap.
#[test]
fn a_waiter_before_all_others_moves_no_other_when_it_leaves() {
    let mut queue = Queue::default();
    for (serial, flow) in ["ann", "bob", "ann", "bob"].into_iter().enumerate() {
        assert!(queue.push(waiting(flow, serial as u64), 9));
    }
    for _ in ["ann", "bob"] {
        assert!(queue.pop().is_some());
    }
    let again = waiting("bob", 4).before_all();
    let details = Arc::clone(&again.details);
    assert!(queue.push(again, 0));
    assert!(queue.leave(&details).is_some());
    let (_, waiting) = queue.listed(None);
    let order = waiting.into_iter().map(|(waiter, _)| waiter.serial);
    assert_eq!(order.collect::<Vec<_>>(), [2, 3]);
}
