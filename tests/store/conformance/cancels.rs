//! Waiters that are cancelled, in every store. `mod.rs` lists these facts.

use super::{
    BOUND, Store, claim, fill,
    queue::{granted, until_waiting, waiter},
};
use testing::wait::eventually;
use tower_semaphore::{AcquireError, Semaphore};

pub(crate) async fn a_dropped_waiter_leaves_the_queue(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let first = waiter(&store, claim("a", 1), 1).await;
    let second = waiter(&store, claim("a", 1), 2).await;
    let third = waiter(&store, claim("a", 1), 3).await;
    second.abort();
    until_waiting(&store, 2).await;
    drop(held);
    drop(granted(first).await);
    drop(granted(third).await);
}

pub(crate) async fn the_next_waiter_is_granted_when_the_head_is_dropped(store: Store) {
    let _held = store
        .acquire(claim("a", 3).with_weight(2))
        .await
        .expect("there is room");
    let heavy = waiter(&store, claim("a", 3).with_weight(2), 1).await;
    let light = waiter(&store, claim("a", 3), 2).await;
    assert!(!light.is_finished());
    heavy.abort();
    drop(granted(light).await);
}

/// Polls each claim a few times before dropping it, while other tasks acquire and release, so that
/// claims are cancelled before they are sent, in flight, in the queue, and once granted.
pub(crate) async fn ten_thousand_cancels_anywhere_leave_nothing_behind(store: Store) {
    let cancel = |task| tokio::spawn(cancel_500_claims(store.clone(), task));
    for task in (0..20).map(cancel).collect::<Vec<_>>() {
        task.await.expect("the task did not panic");
    }
    eventually("all permits are released", BOUND, async || {
        fill(&store, &claim("a", 3)).await.len() == 3
    })
    .await;
    let mut held = Err(AcquireError::Closed);
    eventually("the key is free", BOUND, async || {
        held = store.acquire(claim("a", 1)).await;
        held.is_ok()
    })
    .await;
    until_waiting(&store, 0).await;
}

async fn cancel_500_claims(store: Store, task: u32) {
    for round in 0..500 {
        let claim = claim("a", 3).with_weight(1 + round % 2).with_wait(BOUND);
        let mut acquire = store.acquire(claim);
        for _ in 0..(round + task) % 7 {
            if futures_util::poll!(&mut acquire).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}
