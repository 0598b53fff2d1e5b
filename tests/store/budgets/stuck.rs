//! Waiters of budgets that are paused, revoked, refused or not polled.
//!
//! Promises: P14, P17, P24, P26.

use super::{waiting::waiter, *};
use std::sync::{Arc, Mutex};
use testing::wait::eventually;
use tokio::{
    task::JoinSet,
    time::{Instant, advance, sleep},
};

const RATE: Policy = Policy::from_static("rate");

async fn pause(store: &MemorySemaphore, policy: &'static str, time: Duration) {
    let policy = Policy::from_static(policy);
    let paused = store.pause(&policy, &"ann".into(), time, "").await;
    paused.expect("it is paused");
}

async fn resume(store: &MemorySemaphore) {
    let resumed = store.resume(&RATE, &"ann".into()).await;
    assert!(resumed.expect("it is answered"));
}

/// Queues `count` claims of one unit, and runs `disturb` while they wait. Returns their numbers in the order of their
/// grants.
async fn order_of(store: &MemorySemaphore, count: u32, disturb: impl AsyncFn()) -> Vec<u32> {
    let (order, mut waiting) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    for number in 0..count {
        let (waiter, order) = (waiter(store, rate(60, MINUTE)), Arc::clone(&order));
        waiting.spawn(async move {
            drop(waiter.await.expect("there is room"));
            order.lock().expect("no panic").push(number);
        });
    }
    sleep(SECOND / 2).await;
    disturb().await;
    while let Some(served) = waiting.join_next().await {
        served.expect("no panic");
    }
    Arc::into_inner(order)
        .expect("no task has it")
        .into_inner()
        .expect("no panic")
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_in_time_although_a_pause_was_ended_before() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let start = Instant::now();
    let waiting = tokio::spawn(waiter(&store, rate(60, MINUTE).with_weight(30)));
    sleep(SECOND).await;
    pause(&store, "rate", 20 * MINUTE).await;
    sleep(SECOND).await;
    resume(&store).await;
    drop(waiting.await.expect("no panic").expect("there is room"));
    assert_eq!(start.elapsed(), 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn waiters_keep_their_order_in_a_pause() {
    for is_ended_early in [false, true] {
        let store = MemorySemaphore::new();
        drop(granted(&store, rate(60, MINUTE).with_weight(60)));
        let order = order_of(&store, 6, async || {
            pause(&store, "rate", 20 * SECOND).await;
            if is_ended_early {
                sleep(10 * SECOND).await;
                resume(&store).await;
            }
        });
        assert_eq!(order.await, [0, 1, 2, 3, 4, 5]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_place_in_one_budget_while_another_is_paused() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let both = [rate(60, MINUTE).with_weight(2), tokens(60, MINUTE, 30)];
    let first = tokio::spawn(waiter(&store, both));
    sleep(3 * SECOND).await;
    let second = tokio::spawn(waiter(&store, rate(60, MINUTE).with_weight(60)));
    sleep(3 * SECOND).await;
    pause(&store, "tokens", 10 * SECOND).await;
    held.settle("tokens", 0);
    drop(held);
    drop(first.await.expect("no panic").expect("there is room"));
    assert!(!second.is_finished(), "it passes no waiter");
    drop(second.await.expect("no panic").expect("there is room"));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_does_not_close_a_budget() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let stuck = waiter(&store, rate(60, MINUTE));
    let mut refusals = 0;
    while answer(&store, rate(60, MINUTE)).is_err() {
        refusals += 1;
        assert!(refusals < 10, "the first unit is back after a second");
        advance(SECOND).await;
    }
    drop(stuck);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_delays_another_by_seconds_while_permits_are_settled() {
    let store = MemorySemaphore::new();
    let stream = granted(&store, tokens(10_000, MINUTE, 5_000));
    let other = granted(&store, tokens(10_000, MINUTE, 5_000));
    let stuck = waiter(&store, tokens(10_000, MINUTE, 20));
    let waiting = tokio::spawn(waiter(&store, tokens(10_000, MINUTE, 20)));
    tokio::task::yield_now().await;
    other.settle("tokens", 0);
    drop(other);
    let start = Instant::now();
    for used in 0.. {
        if waiting.is_finished() {
            break;
        }
        assert!(start.elapsed() <= 5 * SECOND);
        stream.settle("tokens", used);
        sleep(SECOND / 4).await;
    }
    drop(waiting.await.expect("no panic").expect("there is room"));
    drop((stuck, stream));
}

/// The permit that holds all tokens, and a request that waits for tokens and keeps its place in the queue of the rate.
async fn waiter_of_two(
    store: &MemorySemaphore,
) -> (
    Permit,
    tokio::task::JoinHandle<Result<Permit, AcquireError>>,
) {
    let held = granted(store, tokens(60, MINUTE, 60));
    drop(granted(store, rate(60, MINUTE).with_weight(60)));
    let both = [rate(60, MINUTE), tokens(60, MINUTE, 30)];
    let waiting = tokio::spawn(waiter(store, both));
    sleep(5 * SECOND).await;
    assert!(!waiting.is_finished());
    (held, waiting)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_revoked_in_one_of_its_queues_is_refused_at_once() {
    let store = MemorySemaphore::builder().holders(true).build();
    let (_held, waiting) = waiter_of_two(&store).await;
    let usage = usage_of(&store, "rate").await;
    let id = &usage.waiting[0].id;
    revoke(&store, "rate", id).await;
    let start = Instant::now();
    let answer = waiting.await.expect("no panic");
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_key_that_is_closed_in_one_of_its_queues_is_refused_at_once() {
    let store = MemorySemaphore::new();
    let (_held, waiting) = waiter_of_two(&store).await;
    let set = store.set_limit(&RATE, None, Some(0), "").await;
    set.expect("it is set");
    let start = Instant::now();
    let answer = waiting.await.expect("no panic");
    assert!(
        matches!(answer, Err(AcquireError::KeyClosed { .. })),
        "{answer:?}"
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// Once the rate is used up, the request leaves the queue of the tokens, waits for the rate, and joins again.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_has_joined_again_is_revoked() {
    let store = MemorySemaphore::builder().holders(true).build();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let one = || tokio::spawn(waiter(&store, tokens(60, MINUTE, 1)));
    let before = one();
    let both = [rate(60, MINUTE).with_weight(10), tokens(60, MINUTE, 2)];
    let revoked = tokio::spawn(waiter(&store, both));
    let after = [one(), one(), one()];
    let id = id_of_weight_2(&store).await.expect("it waits");
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    eventually("it has left the queue", MINUTE, async || {
        id_of_weight_2(&store).await.is_none()
    })
    .await;
    eventually("it has joined again", MINUTE, async || {
        id_of_weight_2(&store).await.is_some()
    })
    .await;
    revoke(&store, "tokens", &id).await;
    let answer = revoked.await.expect("no panic");
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
    drop((held, before, after));
}

/// The id of the waiter of weight 2 in the queue of the tokens.
async fn id_of_weight_2(store: &MemorySemaphore) -> Option<String> {
    let waiting = usage_of(store, "tokens").await.waiting;
    let mut waiting = waiting.into_iter();
    let waiter = waiting.find(|waiter| waiter.weight == 2)?;
    Some(waiter.id)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_two_budgets_is_one_waiter_of_the_store() {
    let store = MemorySemaphore::builder().max_waiting_total(1).build();
    let (held, waiting) = waiter_of_two(&store).await;
    sleep(MINUTE).await;
    held.settle("tokens", 0);
    drop(held);
    drop(waiting.await.expect("no panic").expect("there is room"));
}

#[tokio::test(start_paused = true)]
async fn a_key_with_two_windows_is_listed_once() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(9, MINUTE)));
    drop(granted(&store, rate(9, 2 * MINUTE)));
    let page = store.keys_page(&RATE, None, SECOND).await;
    let page = page.expect("it is answered").expect("the cursor is right");
    assert_eq!(page.keys.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_far_behind_in_one_queue_keeps_its_first_place_in_another() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let crowd = (0..8).map(|_| tokio::spawn(waiter(&store, tokens(60, MINUTE, 1))));
    let crowd: Vec<_> = crowd.collect();
    let first = tokio::spawn(waiter(&store, [rate(60, MINUTE), tokens(60, MINUTE, 1)]));
    sleep(5 * SECOND).await;
    let second = tokio::spawn(waiter(&store, rate(60, MINUTE)));
    // The rate has room after a second, but the first waiter's place keeps it.
    for _ in 0..60 {
        sleep(SECOND).await;
        refused(&store, rate(60, MINUTE));
    }
    assert!(!second.is_finished(), "it passes no waiter");
    held.settle("tokens", 0);
    drop(held);
    for waiting in crowd.into_iter().chain([first, second]) {
        drop(waiting.await.expect("no panic").expect("there is room"));
    }
}

/// Each waiter releases its permit of the paused limit when its turn comes, and gets it again before all others.
#[tokio::test(start_paused = true)]
async fn waiters_keep_their_order_in_a_pause_of_a_narrower_limit() {
    for (begins_ms, lasts_ms) in [(700, 2_000), (900, 300), (100, 900)] {
        let store = MemorySemaphore::new();
        let held = granted(&store, tokens(60, MINUTE, 60));
        let (order, mut waiting) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        for number in 0..3_u32 {
            let (waiter, order) = (
                waiter(&store, [flight(5), tokens(60, MINUTE, 60)]),
                Arc::clone(&order),
            );
            waiting.spawn(async move {
                let permit = waiter.await.expect("there is room");
                order.lock().expect("no panic").push(number);
                permit.settle("tokens", 0);
                sleep(SECOND).await;
            });
        }
        sleep(Duration::from_millis(begins_ms)).await;
        pause(&store, "concurrency", Duration::from_millis(lasts_ms)).await;
        sleep(4 * SECOND).await;
        held.settle("tokens", 0);
        drop(held);
        while let Some(served) = waiting.join_next().await {
            served.expect("no panic");
        }
        assert_eq!(
            *order.lock().expect("no panic"),
            [0, 1, 2],
            "{begins_ms} ms"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_lets_a_waiter_in_at_once() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let mut waiting = waiter(&store, tokens(60, MINUTE, 60));
    held.settle("tokens", 0);
    drop(held);
    // The waiter learns that it fits only after the pause.
    pause(&store, "tokens", MINUTE).await;
    assert!((&mut waiting).now_or_never().is_none());
    let waiting = tokio::spawn(waiting);
    // The task waits for the end of the pause.
    sleep(Duration::from_millis(10)).await;
    let resumed = store.resume(&Policy::from_static("tokens"), &"ann".into());
    assert!(resumed.await.expect("it is answered"));
    let start = Instant::now();
    drop(waiting.await.expect("no panic").expect("there is room"));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_polled_after_the_end_of_its_wait_has_timed_out() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let stuck = store.acquire(rate(60, MINUTE).with_wait(5 * SECOND));
    let mut stuck = stuck.boxed();
    assert!((&mut stuck).now_or_never().is_none());
    advance(4 * SECOND).await;
    let heavy = || rate(60, MINUTE).with_weight(60);
    assert!(
        answer(&store, heavy()).is_err(),
        "the first has lost its place"
    );
    let next = tokio::spawn(waiter(&store, heavy()));
    tokio::task::yield_now().await;
    advance(6 * SECOND).await;
    let answer = stuck.await;
    assert!(
        matches!(answer, Err(AcquireError::TimedOut { .. })),
        "{answer:?}"
    );
    next.abort();
}
