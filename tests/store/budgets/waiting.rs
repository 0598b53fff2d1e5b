//! Claims that wait for budgets. `in_use` returns the spent and the reserved units. `refused` returns the policy that
//! refuses, its units in use, and the time until it has room.
//!
//! Promises: P26.

use super::*;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, advance, sleep, timeout};

const PATIENT: Duration = Duration::from_secs(3_600);

/// A request that waits, polled once.
pub(super) fn waiter(
    store: &MemorySemaphore,
    claims: impl Into<Claims>,
) -> BoxFuture<'static, Result<Permit, AcquireError>> {
    let claims = claims
        .into()
        .into_iter()
        .map(|claim| claim.with_wait(PATIENT));
    let mut waiter = store.acquire_all(claims.collect()).boxed();
    assert!((&mut waiter).now_or_never().is_none(), "it waits");
    waiter
}

/// How long the waiter waits from now on, and its permit.
async fn served(waiter: BoxFuture<'_, Result<Permit, AcquireError>>) -> (Duration, Permit) {
    let start = Instant::now();
    let permit = timeout(PATIENT, waiter).await.expect("it is answered");
    (start.elapsed(), permit.expect("there is room"))
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_when_its_units_have_returned() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let (waited, permit) = served(waiter(&store, rate(60, MINUTE).with_weight(5))).await;
    assert_eq!(waited, 5 * SECOND);
    assert_eq!(permit.waited(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_granted_in_their_order_each_when_it_fits() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let start = Instant::now();
    let mut waiters = tokio::task::JoinSet::new();
    for (number, weight) in [(0_u64, 10_u32), (1, 1), (2, 5)] {
        let waiter = waiter(&store, rate(60, MINUTE).with_weight(weight));
        waiters.spawn(async move { (number, waiter.await.is_ok(), start.elapsed()) });
    }
    let mut order = Vec::new();
    while let Some(served) = waiters.join_next().await {
        order.push(served.expect("no panic"));
    }
    let expected = [(0, 10), (1, 11), (2, 16)];
    assert_eq!(
        order,
        expected.map(|(number, after)| (number, true, after * SECOND))
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_does_not_wait_passes_no_waiter() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(30)));
    let heavy = waiter(&store, rate(60, MINUTE).with_weight(60));
    assert_eq!(refused(&store, rate(60, MINUTE)), ("rate".into(), 30, None));
    assert_eq!(served(heavy).await.0, 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn settled_units_return_and_let_a_waiter_in() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let waiting = tokio::spawn(waiter(&store, tokens(60, MINUTE, 10)));
    sleep(10 * SECOND).await;
    assert!(!waiting.is_finished(), "everything is reserved");
    held.settle("tokens", 20);
    let start = Instant::now();
    let permit = waiting.await.expect("no panic").expect("there is room");
    // 10 units must return of the 20 that are spent.
    assert_eq!(start.elapsed(), 10 * SECOND);
    assert_eq!(in_use(&store, "tokens").await, (10, 50));
    drop((held, permit));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_permit_lets_a_waiter_in_at_once() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let waiting = tokio::spawn(waiter(&store, tokens(60, MINUTE, 50)));
    held.settle("tokens", 5);
    let start = Instant::now();
    drop(held);
    drop(waiting.await.expect("no panic").expect("there is room"));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_takes_nothing_of_any_budget() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let all = [flight(5), rate(10, MINUTE), tokens(60, MINUTE, 30)];
    let waiting = waiter(&store, all);
    assert_eq!(in_use(&store, "rate").await, (0, 0));
    assert_eq!(in_use(&store, "tokens").await, (0, 60));
    held.settle("tokens", 0);
    drop(held);
    let (_, permit) = served(waiting).await;
    assert_eq!(in_use(&store, "rate").await, (1, 0));
    assert_eq!(in_use(&store, "tokens").await, (0, 30));
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_or_is_dropped_leaves_nothing_behind() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let all = || [flight(1), rate(10, MINUTE), tokens(60, MINUTE, 30)];
    drop(waiter(&store, all()));
    let patient = all().map(|claim| claim.with_wait(5 * SECOND));
    let refused = store.acquire_all(patient.into()).await;
    assert!(
        matches!(refused, Err(AcquireError::Full { .. })),
        "{refused:?}"
    );
    assert_eq!(in_use(&store, "rate").await, (0, 0));
    drop(granted(&store, flight(1)));
    held.settle("tokens", 0);
    drop(held);
    drop(granted(&store, all()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_wait_ends_before_time_makes_room_is_refused_at_once() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let late = rate(60, MINUTE).with_weight(10).with_wait(9 * SECOND);
    assert_eq!(refused(&store, late.clone()).2, Some(10 * SECOND));
    let start = Instant::now();
    let early = late.with_wait(10 * SECOND);
    drop(store.acquire(early).await.expect("there is room"));
    assert_eq!(start.elapsed(), 10 * SECOND);
}

/// A reservation may be settled, so only its end shows whether the claim was granted in time.
#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_reserved_units_until_its_wait_is_over() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let start = Instant::now();
    let claim = tokens(60, MINUTE, 1).with_wait(9 * SECOND);
    let refused = store.acquire(claim).await;
    assert!(
        matches!(refused, Err(AcquireError::TimedOut { .. })),
        "{refused:?}"
    );
    assert_eq!(start.elapsed(), 9 * SECOND);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_delays_those_behind_it_by_seconds_at_most() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let stuck = waiter(&store, rate(60, MINUTE));
    let start = Instant::now();
    let (_, permit) = served(waiter(&store, rate(60, MINUTE))).await;
    assert!(start.elapsed() <= 5 * SECOND, "{:?}", start.elapsed());
    let last = tokio::spawn(waiter(&store, rate(60, MINUTE).with_weight(60)));
    // Polled again, it joins behind the other.
    drop(served(stuck).await);
    assert!(last.is_finished());
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_place_in_one_budget_while_it_waits_for_another() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let both = || [rate(60, MINUTE).with_weight(60), tokens(60, MINUTE, 30)];
    let first = tokio::spawn(waiter(&store, both()));
    sleep(SECOND).await;
    let second = tokio::spawn(waiter(&store, rate(60, MINUTE)));
    sleep(5 * MINUTE).await;
    assert!(!first.is_finished() && !second.is_finished());
    held.settle("tokens", 0);
    drop(held);
    drop(first.await.expect("no panic").expect("there is room"));
    let start = Instant::now();
    drop(second.await.expect("no panic").expect("there is room"));
    assert_eq!(start.elapsed(), SECOND);
}

/// The requests would block each other if a claim kept its place in a later budget while it waits for an earlier one.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_two_budgets_are_all_granted() {
    let store = MemorySemaphore::new();
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..40_u32 {
        let both = [
            rate(10, SECOND).with_weight(1 + number % 7),
            tokens(10, SECOND, 1 + number * 3 % 10),
        ];
        let one = match number % 3 {
            0 => Claims::from(both),
            1 => Claims::from(both[0].clone()),
            _ => Claims::from(both[1].clone()),
        };
        let claims: Claims = one
            .into_iter()
            .map(|claim| claim.with_wait(PATIENT))
            .collect();
        let acquire = store.acquire_all(claims);
        waiting.spawn(async move { acquire.await.is_ok() });
    }
    let start = Instant::now();
    while let Some(served) = waiting.join_next().await {
        assert!(served.expect("no panic"));
    }
    // The units of all claims, 106 and 156, come back within 16 s.
    assert!(start.elapsed() < 40 * SECOND, "{:?}", start.elapsed());
    assert_eq!(store.busy_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn flows_take_turns_by_units() {
    let store = MemorySemaphore::new();
    drop(granted(&store, tokens(1_000, SECOND, 1_000)));
    let mut waiting = tokio::task::JoinSet::new();
    for (flow, estimate, count) in [("ann", 50_u32, 80), ("bob", 10, 400)] {
        for _ in 0..count {
            let claim = tokens(1_000, SECOND, estimate).with_flow(flow);
            let claim = claim.with_wait(PATIENT).with_max_waiting(1_000);
            let acquire = store.acquire(claim);
            waiting.spawn(async move {
                drop(acquire.await.expect("there is room"));
                (flow, estimate)
            });
        }
    }
    let (mut ann, mut bob) = (0_u32, 0_u32);
    while let Some(served) = waiting.join_next().await {
        let (flow, units) = served.expect("no panic");
        let by = if flow == "ann" { &mut ann } else { &mut bob };
        *by += units;
        // Until one flow has nearly all of its 4,000 units, they differ by at most two claims of ann.
        if ann.max(bob) < 3_900 {
            assert!(ann.abs_diff(bob) <= 100, "{ann} and {bob}");
        }
    }
    assert_eq!((ann, bob), (4_000, 4_000));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses() {
    let store = MemorySemaphore::new();
    let held = granted(&store, tokens(60, MINUTE, 60));
    let claim = tokens(60, MINUTE, 1).with_max_waiting(1);
    let first = waiter(&store, claim.clone());
    let refused = store.acquire(claim.with_wait(SECOND)).await;
    assert!(
        matches!(refused, Err(AcquireError::QueueFull { .. })),
        "{refused:?}"
    );
    drop((held, first));
}

#[tokio::test(start_paused = true)]
async fn permits_are_held_while_a_request_waits_for_a_budget() {
    let store = MemorySemaphore::new();
    drop(granted(&store, rate(60, MINUTE).with_weight(60)));
    let waiting = waiter(&store, [flight(1), rate(60, MINUTE)]);
    assert_eq!(refused(&store, flight(1)).0, "concurrency");
    drop(waiting);
    drop(granted(&store, flight(1)));
    advance(SECOND).await;
    drop(granted(&store, rate(60, MINUTE)));
}
