//! Pauses of the store in memory under a paused clock, so that each end is exact.
//!
//! Promises: P17.

use futures_util::FutureExt;
use std::time::Duration;
use tokio::{
    task::yield_now,
    time::{Instant, advance, sleep},
};
use tower_semaphore::{
    Acquire, AcquireError, Claim, MemorySemaphore, Operate, Permit, Policy, Semaphore,
};

const SECOND: Duration = Duration::from_secs(1);

/// The resolution of Tokio's timers.
const TICK: Duration = Duration::from_millis(1);

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

fn answer(store: &MemorySemaphore, claim: Claim) -> Result<Permit, AcquireError> {
    let answer = store.acquire(claim).now_or_never();
    answer.expect("it is answered at once")
}

/// Queues a claim and polls it once.
fn waiter(store: &MemorySemaphore, claim: Claim) -> Acquire {
    let mut acquire = store.acquire(claim.with_wait(SECOND * 60));
    assert!((&mut acquire).now_or_never().is_none(), "it waits");
    acquire
}

async fn pause(store: &MemorySemaphore, time: Duration) {
    let paused = store.pause(&Policy::DEFAULT, &"a".into(), time, "");
    paused.await.expect("it is paused");
}

async fn resume(store: &MemorySemaphore) -> bool {
    let resumed = store.resume(&Policy::DEFAULT, &"a".into());
    resumed.await.expect("it answers")
}

fn retry_after(answer: Result<Permit, AcquireError>) -> Duration {
    match answer {
        Err(AcquireError::Paused { retry_after, .. }) => retry_after,
        answer => panic!("it is not paused: {answer:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_at_the_end_of_a_pause_and_the_next_one_after_it() {
    let (store, start) = (MemorySemaphore::new(), Instant::now());
    pause(&store, SECOND).await;
    let (first, second) = (waiter(&store, claim(1)), waiter(&store, claim(1)));
    let second = tokio::spawn(second);
    let first = first.await.expect("the pause ends");
    assert!((SECOND..=SECOND + TICK).contains(&start.elapsed()));
    sleep(SECOND).await;
    assert!(!second.is_finished());
    drop(first);
    assert!(second.await.expect("no panic").is_ok());
    assert!((SECOND * 2..=SECOND * 2 + TICK * 2).contains(&start.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_reports_exactly_how_long_the_key_is_paused() {
    let store = MemorySemaphore::new();
    pause(&store, SECOND).await;
    for left in (1..=1_000).rev().map(Duration::from_millis) {
        assert_eq!(retry_after(answer(&store, claim(1))), left);
        advance(TICK).await;
    }
    assert!(!resume(&store).await, "the pause is over");
    assert!(answer(&store, claim(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_with_the_pause_is_long_enough_and_a_shorter_one_is_not() {
    let store = MemorySemaphore::new();
    pause(&store, SECOND).await;
    let shorter = claim(1).with_wait(SECOND - TICK);
    assert_eq!(retry_after(answer(&store, shorter)), SECOND);
    let equal = store.acquire(claim(1).with_wait(SECOND)).await;
    assert!(equal.is_ok(), "{equal:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_paused_after_a_claim_has_joined_is_granted_at_the_end() {
    let store = MemorySemaphore::new();
    let held = answer(&store, claim(2).with_weight(2)).expect("there is room");
    let polled = waiter(&store, claim(2));
    // A claim joins the queue before any task polls it.
    let unpolled = store.acquire(claim(2).with_wait(SECOND * 60));
    let start = Instant::now();
    pause(&store, SECOND).await;
    assert!(held.release().await);
    let polled = tokio::spawn(polled);
    let unpolled = unpolled.await;
    assert!((SECOND..=SECOND + TICK).contains(&start.elapsed()));
    assert!(unpolled.is_ok() && polled.await.expect("no panic").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_longer_pause_is_seen_at_the_end_of_the_one_before() {
    let (store, start) = (MemorySemaphore::new(), Instant::now());
    pause(&store, SECOND).await;
    let short = tokio::spawn(store.acquire(claim(1).with_wait(SECOND * 2)));
    let long = tokio::spawn(store.acquire(claim(1).with_wait(SECOND * 9)));
    sleep(SECOND / 2).await;
    // The longest of these pauses begins after half a second and lasts until 5.5 s.
    for length in [3, 2, 5, 4] {
        pause(&store, SECOND * length).await;
    }
    let left = retry_after(short.await.expect("no panic"));
    assert!((SECOND..=SECOND + TICK).contains(&start.elapsed()));
    assert!(
        left <= SECOND * 9 / 2 && left + TICK >= SECOND * 9 / 2,
        "{left:?}"
    );
    assert!(long.await.expect("no panic").is_ok());
    let end = SECOND * 11 / 2;
    assert!((end..=end + TICK).contains(&start.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn a_pause_after_a_resume_has_its_own_end() {
    let (store, start) = (MemorySemaphore::new(), Instant::now());
    pause(&store, SECOND).await;
    let first = tokio::spawn(waiter(&store, claim(1)));
    let next = tokio::spawn(waiter(&store, claim(1)));
    yield_now().await;
    assert!(resume(&store).await && !resume(&store).await);
    let first = first.await.expect("no panic").expect("it is resumed");
    pause(&store, SECOND * 5).await;
    drop(first);
    assert!(next.await.expect("no panic").is_ok());
    let end = SECOND * 5;
    assert!((end..=end + TICK).contains(&start.elapsed()));
}

/// A woken future may remain unpolled, so the next claim must grant the waiters.
#[tokio::test(start_paused = true)]
async fn waiters_that_are_not_polled_are_granted_when_another_claim_comes_after_the_end() {
    let store = MemorySemaphore::new();
    pause(&store, SECOND).await;
    let first = waiter(&store, claim(2));
    advance(SECOND).await;
    let permit = answer(&store, claim(2)).expect("there is room for both");
    let full = answer(&store, claim(2));
    assert!(
        matches!(full, Err(AcquireError::Full { held: 2, .. })),
        "{full:?}"
    );
    let first = first.now_or_never().expect("it was granted");
    assert!(first.expect("it was granted").token() < permit.token());

    pause(&store, SECOND).await;
    let heavy = waiter(&store, claim(2).with_weight(2));
    advance(SECOND).await;
    let full = answer(&store, claim(2));
    assert!(
        matches!(full, Err(AcquireError::Full { held: 1, .. })),
        "{full:?}"
    );
    let refused = permit.resize(2).await;
    assert!(
        matches!(refused, Err(AcquireError::Full { .. })),
        "{refused:?}"
    );
    drop(heavy);
    permit.resize(2).await.expect("there is room");
}

#[tokio::test(start_paused = true)]
async fn a_permit_grows_after_the_end_of_a_pause() {
    let store = MemorySemaphore::new();
    let permit = answer(&store, claim(5)).expect("there is room");
    permit
        .pause("concurrency", SECOND, "")
        .await
        .expect("it is paused");
    assert!(permit.resize(2).await.is_err());
    advance(SECOND).await;
    permit.resize(2).await.expect("the pause is over");
    assert!(!resume(&store).await, "it is over");
    permit.release().await;
    permit
        .pause("concurrency", SECOND, "")
        .await
        .expect("the key is there");
    assert_eq!(retry_after(answer(&store, claim(5))), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_paused_key_is_busy_only_while_claims_wait_or_hold() {
    let store = MemorySemaphore::new();
    pause(&store, SECOND).await;
    assert_eq!(store.busy_keys(), 0);
    let waiter = waiter(&store, claim(1));
    assert_eq!(store.busy_keys(), 1);
    drop(waiter);
    assert_eq!(store.busy_keys(), 0);
    assert!(answer(&store, claim(1)).is_err());
}

/// At the pause's end the first waiter that is polled grants the whole crowd, because all others may have left.
#[tokio::test(start_paused = true)]
async fn a_crowd_is_granted_after_a_pause_although_most_of_it_has_left() {
    let store = MemorySemaphore::new();
    let start = Instant::now();
    pause(&store, SECOND).await;
    let one = claim(2_000).with_max_waiting(2_000);
    let mut crowd: Vec<_> = (0..2_000).map(|_| waiter(&store, one.clone())).collect();
    while crowd.len() > 500 {
        // An arbitrary waiter.
        let at = crowd.len() * 7 % 13 * 31 % crowd.len();
        drop(crowd.swap_remove(at));
    }
    let mut permits = Vec::new();
    for waiter in crowd {
        permits.push(waiter.await.expect("the pause ends"));
    }
    assert_eq!(permits.len(), 500);
    assert!(start.elapsed() <= SECOND + TICK);
}
