//! What a lock is in every store.

use super::{BOUND, locked};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use testing::{
    stores::{Store, facts},
    wait::eventually,
};
use tokio::{
    sync::mpsc,
    task::{JoinSet, yield_now},
};
use tower_semaphore::{AcquireError, Claim, Lock, Semaphore};

facts! {
    a_lock_that_is_held_is_refused
    a_guard_that_is_dropped_frees_the_lock
    a_release_frees_the_lock_and_says_that_it_was_held
    forty_tasks_hold_it_one_after_the_other_and_tokens_grow
    it_is_taken_in_the_order_of_arrival
    a_newcomer_passes_no_waiter
    a_wait_that_is_over_fails_and_leaves_nothing_behind
    a_wait_of_no_time_takes_a_free_lock_and_is_over_at_a_held_one
    a_wait_that_is_dropped_leaves_nothing_behind
    locks_of_two_keys_do_not_disturb_each_other
    a_lock_and_a_limit_of_one_key_do_not_disturb_each_other
}

fn lock(store: &Store) -> Lock {
    Lock::new(Arc::clone(store), "a")
}

/// Waits until `count` claims wait for the lock. A further claim finds that out by its own refusal.
async fn queues(store: &Store, count: u32) {
    let probe = Claim::new("a")
        .with_policy("lock")
        .with_limit(1)
        .with_wait(Duration::from_millis(1));
    eventually("as many wait as should", BOUND, async || {
        let full = store.acquire(probe.clone().with_max_waiting(count)).await;
        let room = store.acquire(probe.clone().with_max_waiting(count + 1));
        matches!(full, Err(AcquireError::QueueFull))
            && matches!(room.await, Err(AcquireError::TimedOut))
    })
    .await;
}

async fn a_lock_that_is_held_is_refused(store: Store) {
    let _guard = locked(&lock(&store)).await;
    let refused = lock(&store).try_acquire().await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Full { .. }), "{refused:?}");
}

async fn a_guard_that_is_dropped_frees_the_lock(store: Store) {
    drop(locked(&lock(&store)).await);
    eventually("it is free", BOUND, async || {
        lock(&store).try_acquire().await.is_ok()
    })
    .await;
}

async fn a_release_frees_the_lock_and_says_that_it_was_held(store: Store) {
    let guard = locked(&lock(&store)).await;
    assert!(guard.release().await);
    assert!(lock(&store).try_acquire().await.is_ok());
}

async fn forty_tasks_hold_it_one_after_the_other_and_tokens_grow(store: Store) {
    let (held, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let state = Arc::new((held, last));
    let mut tasks = JoinSet::new();
    for _ in 0..40 {
        let (lock, state) = (lock(&store), Arc::clone(&state));
        tasks.spawn(async move {
            let guard = locked(&lock).await;
            let (held, last) = &*state;
            assert!(!held.swap(true, Ordering::SeqCst), "it has two holders");
            let before = last.swap(guard.token(), Ordering::SeqCst);
            assert!(guard.token() > before);
            yield_now().await;
            held.store(false, Ordering::SeqCst);
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("it did not panic");
    }
}

async fn it_is_taken_in_the_order_of_arrival(store: Store) {
    let guard = locked(&lock(&store)).await;
    let (served, mut order) = mpsc::unbounded_channel();
    for position in 1..=10 {
        let (lock, served) = (lock(&store), served.clone());
        tokio::spawn(async move {
            let _guard = locked(&lock).await;
            served.send(position).expect("the test runs");
        });
        queues(&store, position).await;
    }
    drop(guard);
    for position in 1..=10 {
        assert_eq!(order.recv().await, Some(position));
    }
}

async fn a_newcomer_passes_no_waiter(store: Store) {
    let guard = locked(&lock(&store)).await;
    let mut waiters = JoinSet::new();
    for position in 1..=2 {
        let lock = lock(&store);
        waiters.spawn(async move { locked(&lock).await });
        queues(&store, position).await;
    }
    guard.release().await;
    assert!(lock(&store).try_acquire().await.is_err());
    let first = waiters.join_next().await.expect("two wait");
    assert!(lock(&store).try_acquire().await.is_err());
    drop(first);
    let second = waiters.join_next().await.expect("one waits");
    drop(second.expect("it did not panic"));
}

async fn a_wait_that_is_over_fails_and_leaves_nothing_behind(store: Store) {
    let guard = locked(&lock(&store)).await;
    let over = lock(&store).acquire(Duration::from_millis(30)).await;
    let over = over.expect_err("it was held all the time");
    assert!(matches!(over, AcquireError::TimedOut), "{over:?}");
    queues(&store, 0).await;
    assert!(guard.release().await);
    assert!(lock(&store).try_acquire().await.is_ok());
}

async fn a_wait_of_no_time_takes_a_free_lock_and_is_over_at_a_held_one(store: Store) {
    let guard = lock(&store).acquire(Duration::ZERO).await;
    let guard = guard.expect("it is free");
    let over = lock(&store).acquire(Duration::ZERO).await;
    let over = over.expect_err("it is held");
    assert!(matches!(over, AcquireError::TimedOut), "{over:?}");
    drop(guard);
}

async fn a_wait_that_is_dropped_leaves_nothing_behind(store: Store) {
    let guard = locked(&lock(&store)).await;
    let waiter = lock(&store);
    let waiter = tokio::spawn(async move { locked(&waiter).await });
    queues(&store, 1).await;
    waiter.abort();
    queues(&store, 0).await;
    assert!(guard.release().await);
    assert!(lock(&store).try_acquire().await.is_ok());
}

async fn locks_of_two_keys_do_not_disturb_each_other(store: Store) {
    let _a = locked(&lock(&store)).await;
    let b = Lock::new(Arc::clone(&store), "b");
    assert!(b.try_acquire().await.is_ok());
}

async fn a_lock_and_a_limit_of_one_key_do_not_disturb_each_other(store: Store) {
    let limit = Claim::new("a").with_limit(1);
    let guard = locked(&lock(&store)).await;
    let permit = store.acquire(limit.clone()).await.expect("there is room");
    assert!(lock(&store).try_acquire().await.is_err());
    assert!(guard.release().await);
    assert!(store.acquire(limit).await.is_err());
    assert!(lock(&store).try_acquire().await.is_ok());
    drop(permit);
}
