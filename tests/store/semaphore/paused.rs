//! The store in memory uses Tokio's clock, so a test can pause time.
//!
//! Promises: P14.

use futures_util::{FutureExt, future::BoxFuture};
use std::{
    thread,
    time::{Duration, SystemTime},
};
use tokio::{
    runtime::Builder,
    time::{Instant, advance, sleep},
};
use tower_semaphore::{
    AcquireError, Claim, Claims, MemorySemaphore, Operate, Permit, Policy, Semaphore,
    semaphore::PermitInfo,
};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

fn claim() -> Claim {
    Claim::new("a").with_limit(1)
}

fn granted(store: &MemorySemaphore) -> Permit {
    let answer = store.acquire(claim()).now_or_never();
    answer
        .expect("it is answered at once")
        .expect("there is room")
}

/// Queues a claim that must wait for the permit.
fn waiter(store: &MemorySemaphore, head_start: Duration) -> BoxFuture<'static, Permit> {
    let claim = claim().with_wait(100 * HOUR).with_head_start(head_start);
    let mut waiter = store
        .acquire(claim)
        .map(|answer| answer.expect("there is room"))
        .boxed();
    assert!((&mut waiter).now_or_never().is_none(), "it waits");
    waiter
}

/// Returns the index of the claim that is served first. `times` has two durations for each claim: the time that passes
/// after it has joined, and its head start.
async fn earlier_of(store: &MemorySemaphore, times: [(Duration, Duration); 2]) -> usize {
    let held = granted(store);
    let mut waiters = Vec::new();
    for (passes, head_start) in times {
        waiters.push(waiter(store, head_start));
        advance(passes).await;
    }
    drop(held);
    let served = waiters
        .iter_mut()
        .position(|waiter| waiter.now_or_never().is_some());
    served.expect("one is served")
}

#[tokio::test(start_paused = true)]
async fn a_permit_reports_its_wait_to_the_millisecond_and_none_if_it_was_granted_at_once() {
    let store = MemorySemaphore::new();
    let held = granted(&store);
    assert_eq!(held.waited(), Duration::ZERO);
    let mut waiting = waiter(&store, Duration::ZERO);
    advance(3 * SECOND).await;
    drop(held);
    let permit = (&mut waiting).now_or_never().expect("it is served");
    assert_eq!(permit.waited(), 3 * SECOND);
}

/// Runs a test in a separate runtime whose clock is paused.
fn paused<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test)
}

/// A claim with a head start waits in the queue as if it had arrived that much earlier.
#[tokio::test(start_paused = true)]
async fn a_head_start_counts_from_the_arrival() {
    let store = MemorySemaphore::new();
    let in_time = [(9 * SECOND, Duration::ZERO), (SECOND, 10 * SECOND)];
    assert_eq!(earlier_of(&store, in_time).await, 1);
    let too_late = [(11 * SECOND, Duration::ZERO), (SECOND, 10 * SECOND)];
    assert_eq!(earlier_of(&store, too_late).await, 0);
}

#[test]
fn a_clock_that_was_advanced_in_another_test_changes_no_order() {
    // If this is the first claim of the process, all arrivals count from this time, 100 hours ahead of other clocks.
    let ahead = paused(async {
        advance(100 * HOUR).await;
        let store = MemorySemaphore::new();
        earlier_of(&store, [(SECOND, Duration::ZERO); 2]).await
    });
    assert_eq!(ahead, 0);
    let too_late = [(HOUR, Duration::ZERO), (SECOND, SECOND)];
    let behind = thread::spawn(move || {
        paused(async { earlier_of(&MemorySemaphore::new(), too_late).await })
    });
    assert_eq!(behind.join().expect("it ends"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_several_limits_is_one_wait() {
    let store = MemorySemaphore::new();
    let [inner, outer] = ["inner", "outer"].map(|policy| claim().with_policy(policy));
    let held = store.acquire(inner.clone()).await.expect("there is room");
    let _outer = store.acquire(outer.clone()).await.expect("there is room");
    let both = [inner, outer].map(|claim| claim.with_wait(10 * SECOND));
    let (start, waiter) = (
        Instant::now(),
        tokio::spawn(store.acquire_all(Claims::from_iter(both))),
    );
    sleep(6 * SECOND).await;
    drop(held);
    let answer = waiter.await.expect("it ends");
    assert!(
        matches!(answer, Err(AcquireError::Full { .. })),
        "{answer:?}"
    );
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn usage_reports_how_old_a_permit_is_by_the_paused_clock() {
    let store = MemorySemaphore::builder().holders(true).build();
    let _permit = granted(&store);
    advance(HOUR).await;
    let _waiter = waiter(&store, Duration::ZERO);
    advance(SECOND).await;
    let usage = store
        .usage(&Policy::DEFAULT, &"a".into())
        .await
        .expect("it answers");
    let age = |info: &PermitInfo| usage.now.duration_since(info.since).ok();
    assert_eq!(age(&usage.held[0]), Some(HOUR + SECOND));
    assert_eq!(age(&usage.waiting[0]), Some(SECOND));
}

#[tokio::test]
async fn usage_reports_the_same_of_a_permit_while_it_is_held() {
    let store = MemorySemaphore::builder().holders(true).build();
    let begun = SystemTime::now();
    let _permit = granted(&store);
    let shown = async || {
        let usage = store.usage(&Policy::DEFAULT, &"a".into()).await;
        usage.expect("it answers").held
    };
    let first = shown().await;
    // A time that is computed at each look would differ now.
    sleep(Duration::from_millis(5)).await;
    assert_eq!(shown().await, first);
    assert!(first[0].since >= begun);
}
