//! The lock's behaviour in every store. Its queue is that of a limit of 1, which the conformance suite covers.
//!
//! Promises: P1, P5.

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
use tokio::task::{JoinSet, yield_now};
use tower_semaphore::{AcquireError, Claim, Lock, Semaphore};

facts! {
    a_lock_that_is_held_is_refused
    a_guard_that_is_dropped_frees_the_lock
    forty_tasks_hold_it_one_after_the_other_and_tokens_grow
    a_wait_of_no_time_takes_a_free_lock_and_is_over_at_a_held_one
    a_lock_and_a_limit_of_one_key_do_not_disturb_each_other
}

fn lock(store: &Store) -> Lock {
    Lock::new(Arc::clone(store), "a")
}

async fn a_lock_that_is_held_is_refused(store: Store) {
    let _guard = locked(&lock(&store)).await;
    let other = Lock::new(Arc::clone(&store), "b");
    assert!(other.try_acquire().await.is_ok(), "it is another lock");
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

async fn a_wait_of_no_time_takes_a_free_lock_and_is_over_at_a_held_one(store: Store) {
    let guard = lock(&store).acquire(Duration::ZERO).await;
    let guard = guard.expect("it is free");
    let over = lock(&store).acquire(Duration::ZERO).await;
    let over = over.expect_err("it is held");
    assert!(matches!(over, AcquireError::TimedOut { .. }), "{over:?}");
    drop(guard);
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
