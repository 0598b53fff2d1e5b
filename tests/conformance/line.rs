//! What waiting means, in every store.

use crate::{BOUND, Store, claim, fill, support::wait::eventually};
use std::time::Duration;
use tokio::task::JoinHandle;
use tower_semaphore::{AcquireError, Claim, Permit, Semaphore};

type Waiter = JoinHandle<Result<Permit, AcquireError>>;

/// How many wait, as a claim finds out that would be the next: it is told that the line is full.
async fn lines_up(store: &Store, count: usize) {
    eventually("as many wait as should", BOUND, async || {
        let next = claim("a", 1)
            .with_wait(Duration::from_millis(1))
            .with_max_waiting(count);
        matches!(store.acquire(next).await, Err(AcquireError::QueueFull))
    })
    .await;
}

/// Starts a claim that waits, and returns when it stands in the line as number `count`.
async fn waiter(store: &Store, claim: Claim, count: usize) -> Waiter {
    let waiter = tokio::spawn(store.acquire(claim.with_wait(BOUND)));
    lines_up(store, count).await;
    waiter
}

async fn granted(waiter: Waiter) -> Permit {
    waiter
        .await
        .expect("it did not panic")
        .expect("it is granted")
}

pub(crate) async fn a_claim_that_waits_is_granted_when_there_is_room(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let waiter = waiter(&store, claim("a", 1), 1).await;
    assert!(!waiter.is_finished());
    drop(held);
    drop(granted(waiter).await);
}

pub(crate) async fn waiters_are_granted_in_the_order_in_which_they_came(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let mut waiters = Vec::new();
    for count in 1..=20 {
        waiters.push(waiter(&store, claim("a", 1), count).await);
    }
    drop(held);
    for (turn, waiter) in waiters.into_iter().enumerate() {
        let permit = granted(waiter).await;
        lines_up(&store, 19 - turn).await;
        drop(permit);
    }
}

pub(crate) async fn a_claim_that_does_not_wait_never_passes_the_line(store: Store) {
    let _held = store.acquire(claim("a", 2)).await.expect("there is room");
    let heavy = waiter(&store, claim("a", 2).with_weight(2), 1).await;
    let refused = store
        .acquire(claim("a", 2))
        .await
        .expect_err("somebody waits");
    assert!(
        matches!(
            refused,
            AcquireError::Full {
                limit: 2,
                held: 1,
                ..
            }
        ),
        "{refused:?}"
    );
    heavy.abort();
}

pub(crate) async fn a_heavy_head_is_not_starved_by_lighter_claims_behind_it(store: Store) {
    let first = store.acquire(claim("a", 3)).await.expect("there is room");
    let second = store.acquire(claim("a", 3)).await.expect("there is room");
    let heavy = waiter(&store, claim("a", 3).with_weight(3), 1).await;
    let light = waiter(&store, claim("a", 3), 2).await;
    first.release().await;
    assert!(!light.is_finished());
    second.release().await;
    let heavy = granted(heavy).await;
    assert!(!light.is_finished());
    heavy.release().await;
    drop(granted(light).await);
}

pub(crate) async fn one_release_lets_in_all_that_fit(store: Store) {
    let heavy = store
        .acquire(claim("a", 3).with_weight(3))
        .await
        .expect("there is room");
    let mut waiters = Vec::new();
    for count in 1..=4 {
        waiters.push(waiter(&store, claim("a", 3), count).await);
    }
    drop(heavy);
    let last = waiters.pop().expect("there are four");
    let mut permits = Vec::new();
    for waiter in waiters {
        permits.push(granted(waiter).await);
    }
    assert!(!last.is_finished());
    drop(permits);
    drop(granted(last).await);
}

pub(crate) async fn a_waiter_is_granted_under_its_own_limit(store: Store) {
    let mut held = fill(&store, &claim("a", 5)).await;
    let modest = waiter(&store, claim("a", 2), 1).await;
    while held.len() > 2 {
        held.pop().expect("not empty").release().await;
        assert!(!modest.is_finished());
    }
    held.pop().expect("not empty").release().await;
    drop(granted(modest).await);
}

pub(crate) async fn a_claim_under_a_higher_limit_waits_its_turn(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let first = waiter(&store, claim("a", 1), 1).await;
    let second = waiter(&store, claim("a", 2), 2).await;
    drop(held);
    let first = granted(first).await;
    // There is room for two under its own limit, and nobody before it any more.
    let second = granted(second).await;
    assert!(second.token() > first.token());
}

pub(crate) async fn a_wait_that_is_over_is_told_and_leaves_nothing(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let short = claim("a", 1).with_wait(Duration::from_millis(30));
    let over = store
        .acquire(short)
        .await
        .expect_err("nobody gave anything back");
    assert!(matches!(over, AcquireError::TimedOut), "{over:?}");
    lines_up(&store, 0).await;
    assert!(held.release().await);
    eventually("it is free", BOUND, async || {
        store.acquire(claim("a", 1)).await.is_ok()
    })
    .await;
}

pub(crate) async fn a_full_line_is_told(store: Store) {
    let _held = store.acquire(claim("a", 1)).await.expect("there is room");
    let _first = waiter(&store, claim("a", 1), 1).await;
    let _second = waiter(&store, claim("a", 1), 2).await;
    let third = claim("a", 1).with_wait(BOUND).with_max_waiting(2);
    let refused = store.acquire(third).await.expect_err("two wait");
    assert!(matches!(refused, AcquireError::QueueFull), "{refused:?}");
}

pub(crate) async fn as_many_may_wait_as_the_claim_says(store: Store) {
    let _held = store.acquire(claim("a", 1)).await.expect("there is room");
    let nobody = claim("a", 1).with_wait(BOUND).with_max_waiting(0);
    let refused = store.acquire(nobody).await.expect_err("none may wait");
    assert!(matches!(refused, AcquireError::QueueFull), "{refused:?}");
    let _waiter = waiter(&store, claim("a", 1), 1).await;
    let alone = claim("a", 1).with_wait(BOUND).with_max_waiting(1);
    let refused = store.acquire(alone).await.expect_err("one waits already");
    assert!(matches!(refused, AcquireError::QueueFull), "{refused:?}");
    let _other = waiter(&store, claim("a", 1).with_max_waiting(9), 2).await;
}

pub(crate) async fn a_waiter_that_is_dropped_leaves_the_line(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let first = waiter(&store, claim("a", 1), 1).await;
    let second = waiter(&store, claim("a", 1), 2).await;
    let third = waiter(&store, claim("a", 1), 3).await;
    second.abort();
    eventually("it has left", BOUND, async || {
        let next = claim("a", 1)
            .with_wait(Duration::from_millis(1))
            .with_max_waiting(3);
        matches!(store.acquire(next).await, Err(AcquireError::TimedOut))
    })
    .await;
    drop(held);
    drop(granted(first).await);
    drop(granted(third).await);
}

pub(crate) async fn a_head_that_is_dropped_lets_the_next_in(store: Store) {
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

pub(crate) async fn tokens_grow_along_the_line(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let mut waiters = Vec::new();
    for count in 1..=5 {
        waiters.push(waiter(&store, claim("a", 1), count).await);
    }
    let mut last = held.token();
    drop(held);
    for waiter in waiters {
        let permit = granted(waiter).await;
        assert!(permit.token() > last);
        last = permit.token();
    }
}

/// Polls each claim a few times before it is dropped, while others take and give back, so that
/// it is cancelled before it asks, while it asks, in the line, and when it is granted.
pub(crate) async fn ten_thousand_cancels_anywhere_leave_nothing_behind(store: Store) {
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
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
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it did not panic");
    }
    eventually("all is free", BOUND, async || {
        fill(&store, &claim("a", 3)).await.len() == 3
    })
    .await;
    let mut held = Err(AcquireError::TimedOut);
    eventually("it is free", BOUND, async || {
        held = store.acquire(claim("a", 1)).await;
        held.is_ok()
    })
    .await;
    lines_up(&store, 0).await;
}

#[tokio::test]
async fn as_many_may_wait_in_memory_as_the_store_says_for_all_keys_together() {
    let store = tower_semaphore::MemorySemaphore::new().with_max_waiting_total(1);
    let mut held = Vec::new();
    for key in ["a", "b"] {
        held.push(store.acquire(claim(key, 1)).await.expect("there is room"));
    }
    let first = store.acquire(claim("a", 1).with_wait(BOUND));
    let refused = store.acquire(claim("b", 1).with_wait(BOUND)).await;
    assert!(
        matches!(refused, Err(AcquireError::Overloaded)),
        "{refused:?}"
    );
    drop(first);
    let brief = claim("b", 1).with_wait(Duration::from_millis(1));
    let over = store.acquire(brief).await;
    assert!(matches!(over, Err(AcquireError::TimedOut)), "{over:?}");
}
