//! Budgets, in every store: units that come back with time. A claim with an estimate reserves units. They are *settled*
//! with the number that was used: these are spent, and the end of the permit frees the rest.
//!
//! Promises: P26.

use super::{BOUND, Store, queue::Waiter};
use std::time::{Duration, Instant};
use testing::{
    stores::facts_of_operators,
    wait::{eventually, within},
};
use tower_semaphore::{AcquireError, Claim, Claims, Permit, Semaphore, semaphore::Usage};

/// Makes each of these functions a test of each store that lists its holders, and of the store over Sentinels.
macro_rules! facts_everywhere {
    ($($fact:ident)*) => {
        facts_of_operators! { $($fact)* }
        testing::facts_over_shared! { sentinel: $($fact)* }
    };
}

facts_everywhere! {
    a_budget_grants_up_to_its_limit_and_reports_when_it_has_room
    a_reservation_stays_until_its_permit_ends
    a_settlement_is_a_total_that_counts_once
    a_permit_settled_with_nothing_frees_its_estimate_and_one_that_is_not_settled_spends_it
    use_beyond_an_estimate_is_spent
    a_rate_is_spent_at_once_and_its_permit_frees_nothing
    spent_units_come_back_evenly
    another_window_is_another_budget
    a_refused_request_takes_nothing_at_any_level
    a_request_that_waits_for_a_budget_keeps_its_permits_and_reserves_nothing
    a_waiter_is_granted_when_time_has_made_room
    a_waiter_is_granted_when_a_permit_ends_with_little_use
    waiters_are_served_in_order_and_no_claim_passes_them
    a_wait_that_ends_before_time_makes_room_is_refused_at_once
    flows_take_turns_by_units
    a_limit_of_an_operator_holds_for_all_windows
    a_pause_holds_for_all_windows
    a_pause_holds_for_a_window_that_is_used_for_the_first_time
    a_rate_is_spent_also_beside_other_limits
    usage_lists_reservations_and_what_is_settled
    a_revoked_permit_has_used_its_estimate
    a_budget_reserves_up_to_the_highest_number_of_units
    keys_that_look_like_budgets_are_none
}

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// A claim that reserves `estimate` tokens. Its window is long: nearly none come back while a test runs.
fn tokens(limit: u32, estimate: u32) -> Claim {
    let claim = Claim::new("a").with_policy("tokens").with_limit(limit);
    claim.with_window(1_000 * HOUR / 2).with_estimate(estimate)
}

/// A claim of one unit of a rate, which is spent when it is granted.
fn rate(limit: u32, window: Duration) -> Claim {
    let claim = Claim::new("a").with_policy("rate").with_limit(limit);
    claim.with_window(window)
}

async fn granted(store: &Store, claims: impl Into<Claims>) -> Permit {
    let permit = within("it is answered", BOUND, store.acquire_all(claims.into())).await;
    permit.expect("there is room")
}

/// The units in use, and when time makes room.
async fn refused(store: &Store, claims: impl Into<Claims>) -> (u32, Option<Duration>) {
    let refused = within("it is answered", BOUND, store.acquire_all(claims.into())).await;
    match refused.expect_err("it is refused") {
        AcquireError::Full {
            held, retry_after, ..
        } => (held, retry_after),
        error => panic!("{error:?}"),
    }
}

async fn usage(store: &Store, claim: &Claim) -> Usage {
    let usage = store.usage(claim.policy(), claim.key()).await;
    usage.expect("the store answers")
}

/// The spent and the reserved units of the key's budgets.
async fn in_use(store: &Store, claim: &Claim) -> (u32, u32) {
    let budgets = usage(store, claim).await.budgets;
    let spent = budgets.iter().map(|budget| budget.spent).sum();
    (spent, budgets.iter().map(|budget| budget.reserved).sum())
}

fn spawn(store: &Store, claims: impl Into<Claims>) -> Waiter {
    tokio::spawn(store.acquire_all(claims.into()))
}

async fn until_listed_waiting(store: &Store, claim: &Claim, count: usize) {
    let is_queued = async || usage(store, claim).await.waiting.len() == count;
    eventually("the queue has the expected length", BOUND, is_queued).await;
}

async fn until_in_use(store: &Store, claim: &Claim, expected: (u32, u32)) {
    let is_expected = async || in_use(store, claim).await == expected;
    eventually("the usage is as expected", BOUND, is_expected).await;
}

async fn a_budget_grants_up_to_its_limit_and_reports_when_it_has_room(store: Store) {
    let _one = granted(&store, tokens(100, 60)).await;
    let _other = granted(&store, tokens(100, 40)).await;
    assert_eq!(refused(&store, tokens(100, 1)).await, (100, None));
    for _ in 0..10 {
        drop(granted(&store, rate(10, HOUR)).await);
    }
    let (used, left) = refused(&store, rate(10, HOUR)).await;
    let left = left.expect("time makes room");
    assert!(
        used == 10 && left <= HOUR / 10 && left > HOUR / 12,
        "{left:?}"
    );
}

async fn a_reservation_stays_until_its_permit_ends(store: Store) {
    let permit = granted(&store, tokens(100, 60)).await;
    assert_eq!(in_use(&store, &tokens(100, 1)).await, (0, 60));
    permit.settle("tokens", 0);
    assert!(permit.release().await);
    until_in_use(&store, &tokens(100, 1), (0, 0)).await;
    drop(granted(&store, tokens(100, 100)).await);
}

async fn a_settlement_is_a_total_that_counts_once(store: Store) {
    let permit = granted(&store, tokens(100, 60)).await;
    for used in [30, 10, 0, 30] {
        assert!(permit.clone().settle("tokens", used));
    }
    assert!(!permit.settle("rate", 1));
    assert!(permit.release().await);
    permit.settle("tokens", 50);
    until_in_use(&store, &tokens(100, 1), (30, 0)).await;
}

async fn a_permit_settled_with_nothing_frees_its_estimate_and_one_that_is_not_settled_spends_it(
    store: Store,
) {
    let one = granted(&store, tokens(100, 60)).await;
    let other = granted(&store, tokens(100, 30)).await;
    assert!(one.settle("tokens", 0));
    drop((one, other));
    until_in_use(&store, &tokens(100, 1), (30, 0)).await;
}

async fn use_beyond_an_estimate_is_spent(store: Store) {
    let permit = granted(&store, tokens(100, 10)).await;
    permit.settle("tokens", 250);
    drop(permit);
    until_in_use(&store, &tokens(100, 1), (250, 0)).await;
    let (used, left) = refused(&store, tokens(100, 1)).await;
    // 151 of 250 units have to come back, 100 in a window.
    let left = left.expect("time makes room");
    assert!(
        used == 250 && left > 750 * HOUR && left <= 755 * HOUR,
        "{left:?}"
    );
}

async fn a_rate_is_spent_at_once_and_its_permit_frees_nothing(store: Store) {
    let permit = granted(&store, rate(10, HOUR).with_weight(4)).await;
    assert_eq!(in_use(&store, &rate(10, HOUR)).await, (4, 0));
    assert!(!permit.settle("rate", 0));
    assert!(permit.release().await);
    assert_eq!(in_use(&store, &rate(10, HOUR)).await, (4, 0));
    assert_eq!(refused(&store, rate(10, HOUR).with_weight(7)).await.0, 4);
}

async fn spent_units_come_back_evenly(store: Store) {
    let window = Duration::from_millis(400);
    let begun = Instant::now();
    for number in 0..12_u32 {
        let claim = rate(4, window);
        eventually("time makes room", BOUND, async || {
            store.acquire(claim.clone()).await.is_ok()
        })
        .await;
        // The first four are granted at once, and then one each 100 ms. The slack is for a clock of whole milliseconds.
        let earliest = (window / 4) * number.saturating_sub(3);
        assert!(
            begun.elapsed() + Duration::from_millis(2) >= earliest,
            "{number}"
        );
    }
}

async fn another_window_is_another_budget(store: Store) {
    drop(granted(&store, rate(1, HOUR)).await);
    drop(granted(&store, rate(1, 2 * HOUR)).await);
    refused(&store, rate(1, HOUR)).await;
    refused(&store, rate(1, 2 * HOUR)).await;
    assert_eq!(usage(&store, &rate(1, HOUR)).await.budgets.len(), 2);
}

/// A claim under a limit of requests in flight.
fn flight(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

async fn a_refused_request_takes_nothing_at_any_level(store: Store) {
    drop(granted(&store, rate(1, HOUR)).await);
    let all = [flight(5), tokens(100, 60), rate(1, HOUR)];
    assert_eq!(refused(&store, all).await.0, 1);
    let is_free = async || usage(&store, &flight(5)).await.units == 0;
    eventually("nothing is held", BOUND, is_free).await;
    until_in_use(&store, &tokens(100, 1), (0, 0)).await;
    let wrong = [rate(10, HOUR), flight(5)];
    let wrong = store.acquire_all(wrong.into()).await;
    let error = wrong.expect_err("a budget comes last");
    assert!(matches!(error, AcquireError::Invalid { .. }), "{error:?}");
}

async fn a_request_that_waits_for_a_budget_keeps_its_permits_and_reserves_nothing(store: Store) {
    let first = granted(&store, tokens(100, 60)).await;
    let claims = [flight(5), tokens(100, 60)].map(|claim| claim.with_wait(MINUTE));
    let waiter = spawn(&store, claims.to_vec());
    until_listed_waiting(&store, &tokens(100, 60), 1).await;
    assert_eq!(usage(&store, &flight(5)).await.units, 1);
    assert_eq!(in_use(&store, &tokens(100, 1)).await, (0, 60));
    first.settle("tokens", 0);
    drop(first);
    let permit = within("it is answered", BOUND, waiter)
        .await
        .expect("no panic");
    let permit = permit.expect("there is room");
    assert_eq!(in_use(&store, &tokens(100, 1)).await, (0, 60));
    drop(permit);
    until_in_use(&store, &tokens(100, 1), (60, 0)).await;
}

async fn a_waiter_is_granted_when_time_has_made_room(store: Store) {
    // Ten of the twelve units fit at first. One comes back every 400 ms, so the last two take 800 ms, less the clocks'
    // rounding.
    let claim = || rate(10, 4 * Duration::from_secs(1)).with_wait(MINUTE);
    let begun = Instant::now();
    for _ in 0..10 {
        drop(granted(&store, claim()).await);
    }
    drop(granted(&store, claim().with_weight(2)).await);
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(790), "{took:?}");
}

async fn a_waiter_is_granted_when_a_permit_ends_with_little_use(store: Store) {
    let first = granted(&store, tokens(100, 100)).await;
    let waiter = spawn(&store, tokens(100, 50).with_wait(MINUTE));
    until_listed_waiting(&store, &tokens(100, 50), 1).await;
    first.settle("tokens", 50);
    drop(first);
    let permit = within("it is answered", BOUND, waiter)
        .await
        .expect("no panic");
    drop(permit.expect("there is room"));
}

async fn waiters_are_served_in_order_and_no_claim_passes_them(store: Store) {
    let mut first = granted(&store, tokens(100, 100)).await;
    let mut waiters = Vec::new();
    for number in 0..4 {
        let waiter = spawn(&store, tokens(100, 60).with_wait(MINUTE));
        until_listed_waiting(&store, &tokens(100, 60), number + 1).await;
        waiters.push(waiter);
    }
    for waiter in waiters {
        refused(&store, tokens(100, 1)).await;
        first.settle("tokens", 0);
        drop(first);
        let permit = within("it is answered", BOUND, waiter)
            .await
            .expect("no panic");
        first = permit.expect("it is its turn");
    }
}

async fn a_wait_that_ends_before_time_makes_room_is_refused_at_once(store: Store) {
    drop(granted(&store, rate(1, HOUR)).await);
    let begun = Instant::now();
    let (_, left) = refused(&store, rate(1, HOUR).with_wait(10 * MINUTE)).await;
    assert!(
        begun.elapsed() < BOUND && left > Some(50 * MINUTE),
        "{left:?}"
    );
}

async fn flows_take_turns_by_units(store: Store) {
    let mut first = granted(&store, tokens(100, 100)).await;
    let mut waiters = Vec::new();
    for (number, (flow, units)) in [("x", 60), ("x", 60), ("x", 60), ("y", 90), ("y", 90)]
        .into_iter()
        .enumerate()
    {
        let claim = tokens(100, units).with_flow(flow).with_wait(MINUTE);
        waiters.push((flow, spawn(&store, claim)));
        until_listed_waiting(&store, &tokens(100, 60), number + 1).await;
    }
    let mut order = String::new();
    while !waiters.is_empty() {
        first.settle("tokens", 0);
        drop(first);
        let mut next = None;
        eventually("one is granted", BOUND, async || {
            next = waiters.iter().position(|(_, waiter)| waiter.is_finished());
            next.is_some()
        })
        .await;
        let (flow, waiter) = waiters.remove(next.expect("one has finished"));
        order.push_str(flow);
        first = waiter.await.expect("no panic").expect("it is its turn");
    }
    // A claim's turn comes after the units that its flow has claimed before: 0, 60 and 120 for x, 0 and 90 for y.
    assert_eq!(order, "xyxyx");
}

async fn a_limit_of_an_operator_holds_for_all_windows(store: Store) {
    let claim = rate(10, HOUR);
    let set = store.set_limit(claim.policy(), Some(claim.key()), Some(2), "");
    set.await.expect("the store answers");
    for window in [HOUR, 2 * HOUR] {
        drop(granted(&store, rate(10, window)).await);
        drop(granted(&store, rate(10, window)).await);
        assert_eq!(refused(&store, rate(10, window)).await.0, 2);
    }
    let heavy = rate(10, HOUR).with_weight(3).with_wait(MINUTE);
    refused(&store, heavy).await;
}

async fn a_pause_holds_for_all_windows(store: Store) {
    for window in [HOUR, 2 * HOUR] {
        drop(granted(&store, rate(10, window)).await);
    }
    let claim = rate(10, HOUR);
    let paused = store.pause(claim.policy(), claim.key(), HOUR, "");
    paused.await.expect("the store answers");
    for window in [HOUR, 2 * HOUR] {
        let refused = store.acquire(rate(10, window)).await;
        let error = refused.expect_err("it is paused");
        assert!(matches!(error, AcquireError::Paused { .. }), "{error:?}");
    }
    let waiter = spawn(&store, rate(10, HOUR).with_wait(2 * HOUR));
    until_listed_waiting(&store, &claim, 1).await;
    let resumed = store.resume(claim.policy(), claim.key()).await;
    assert!(resumed.expect("the store answers"));
    let permit = within("it is answered", BOUND, waiter)
        .await
        .expect("no panic");
    drop(permit.expect("there is room"));
    drop(granted(&store, rate(10, 2 * HOUR)).await);
}

async fn a_pause_holds_for_a_window_that_is_used_for_the_first_time(store: Store) {
    let claim = rate(10, Duration::from_millis(50));
    let paused = store.pause(claim.policy(), claim.key(), HOUR, "");
    paused.await.expect("the store answers");
    for window in [Duration::from_millis(50), HOUR] {
        let refused = store.acquire(rate(10, window)).await;
        let error = refused.expect_err("it is paused");
        assert!(matches!(error, AcquireError::Paused { .. }), "{error:?}");
    }
    assert!(usage(&store, &claim).await.pause.is_some());
    let resumed = store.resume(claim.policy(), claim.key()).await;
    assert!(resumed.expect("the store answers"));
    for window in [Duration::from_millis(50), HOUR] {
        drop(granted(&store, rate(10, window)).await);
    }
    let resumed = store.resume(claim.policy(), claim.key()).await;
    assert!(!resumed.expect("the store answers"));
}

/// On a cluster each limit has a separate lease, and a narrower one is held for a short time until all are granted.
async fn a_rate_is_spent_also_beside_other_limits(store: Store) {
    let claims = [
        flight(5),
        rate(10, HOUR).with_weight(4),
        tokens(100, 10).with_window(MINUTE),
    ];
    let permit = granted(&store, claims).await;
    until_in_use(&store, &rate(10, HOUR), (4, 0)).await;
    drop(permit);
    until_in_use(&store, &rate(10, HOUR), (4, 0)).await;
}

async fn usage_lists_reservations_and_what_is_settled(store: Store) {
    let claim = tokens(100, 60).with_label("GET /");
    let permit = granted(&store, [claim.clone(), rate(10, HOUR)]).await;
    let waiter = spawn(&store, tokens(100, 70).with_wait(MINUTE));
    until_listed_waiting(&store, &claim, 1).await;
    let listed = usage(&store, &claim).await;
    let [held] = &listed.held[..] else {
        panic!("{listed:?}")
    };
    assert_eq!((held.weight, held.limit, held.settled), (60, 100, None));
    assert_eq!(held.label.as_deref(), Some("GET /"));
    assert_eq!(held.window, claim.window());
    let [waiting] = &listed.waiting[..] else {
        panic!("{listed:?}")
    };
    assert_eq!((waiting.weight, waiting.window), (70, claim.window()));
    let [budget] = listed.budgets[..] else {
        panic!("{listed:?}")
    };
    assert_eq!((budget.spent, budget.reserved), (0, 60));
    assert_eq!(listed.units, 60);
    permit.settle("tokens", 20);
    // A settlement travels with the next refresh.
    let is_settled = async || {
        let listed = usage(&store, &claim).await;
        listed.held[0].settled == Some(20) && in_use(&store, &claim).await == (20, 40)
    };
    eventually("it is settled", 3 * BOUND, is_settled).await;
    drop(waiter);
}

async fn a_revoked_permit_has_used_its_estimate(store: Store) {
    let claim = tokens(100, 60);
    let permit = granted(&store, [flight(5), claim.clone()]).await;
    let id = usage(&store, &claim).await.held[0].id.clone();
    let revoked = store.revoke(claim.policy(), claim.key(), &id).await;
    assert!(revoked.expect("the store answers"));
    until_in_use(&store, &claim, (60, 0)).await;
    within("it is answered", BOUND, permit.lost()).await;
    drop(permit);
    let is_free = async || usage(&store, &flight(5)).await.units == 0;
    eventually("the other limit is free", BOUND, is_free).await;
    assert_eq!(in_use(&store, &claim).await, (60, 0));
}

async fn a_budget_reserves_up_to_the_highest_number_of_units(store: Store) {
    let most = u32::MAX;
    let permit = granted(&store, tokens(most, most - 1)).await;
    assert_eq!(permit.remaining(), 1);
    permit.settle("tokens", most - 1_000_000);
    drop(permit);
    // Some 2,400 units come back in a second.
    let is_spent = async || {
        let (spent, reserved) = in_use(&store, &tokens(most, 1)).await;
        reserved == 0 && (most - 2_000_000..=most - 1_000_000).contains(&spent)
    };
    eventually("the settled units are spent", BOUND, is_spent).await;
    let rate = rate(most, HOUR).with_weight(1_000_000);
    drop(granted(&store, rate).await);
}

async fn keys_that_look_like_budgets_are_none(store: Store) {
    let with_odd_key = |claim: Claim| claim.with_key("budget-1");
    let claims = [with_odd_key(flight(5)), with_odd_key(tokens(100, 60))];
    let permit = granted(&store, claims).await;
    let flight = with_odd_key(flight(5));
    let paused = store.pause(flight.policy(), flight.key(), HOUR, "");
    paused.await.expect("the store answers");
    let refused = store.acquire(flight.clone()).await;
    assert!(matches!(refused, Err(AcquireError::Paused { .. })));
    let resumed = store.resume(flight.policy(), flight.key()).await;
    assert!(resumed.expect("the store answers"));
    permit.settle("tokens", 10);
    assert!(permit.release().await);
    let is_free = async || usage(&store, &flight).await.units == 0;
    eventually("nothing is held", BOUND, is_free).await;
    until_in_use(&store, &with_odd_key(tokens(100, 1)), (10, 0)).await;
    drop(granted(&store, flight).await);
}
