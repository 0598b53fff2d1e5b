//! Paused keys, in every store. A paused key grants nothing until the pause ends or is resumed.
//!
//! Promises: P17.

use super::{
    BOUND, Store, claim,
    queue::{Waiter, granted, until_queued, until_waiting},
    several::until_held,
    several_waiting::spawn,
};
use futures_util::{StreamExt, future::join_all};
use std::time::{Duration, Instant, SystemTime};
use testing::{
    levels::claims,
    stores::facts,
    wait::{eventually, within},
};
use tokio::time::sleep;
use tower_semaphore::{
    AcquireError, Claim, Permit, Policy, Semaphore,
    semaphore::{ClaimError, KeyCounts, MAX_PAUSE, PauseInfo, StoredKey},
};

facts! {
    a_paused_key_grants_nothing_and_refuses_with_the_remaining_time
    another_key_and_the_key_under_another_policy_are_not_paused
    holders_keep_their_permits_and_a_release_grants_nothing
    waiters_keep_their_order_and_none_is_granted_before_the_end
    the_first_waiter_is_granted_soon_after_the_end
    a_claim_that_does_not_wait_is_granted_after_the_end
    a_shorter_or_empty_pause_changes_nothing_and_a_longer_one_counts
    a_pause_that_is_made_longer_holds_back_the_waiters
    a_pause_without_an_end_lasts_for_the_longest_time
    a_pause_that_is_never_polled_or_has_no_key_pauses_nothing
    resume_grants_the_waiters_and_reports_if_the_key_was_paused
    a_wait_that_would_end_before_the_pause_is_refused_at_once
    a_claim_that_waits_already_is_refused_if_its_wait_ends_before_the_pause
    a_pause_counts_as_no_waiter
    a_waiter_that_leaves_in_a_pause_leaves_nothing_behind
    a_growth_is_refused_and_a_smaller_weight_is_not
    a_paused_level_refuses_and_nothing_of_the_others_is_taken
    a_claim_of_several_levels_waits_at_the_paused_one_and_keeps_the_narrower_ones
    a_pause_holds_back_a_claim_that_waits_for_a_wider_limit_and_no_other_waiter_of_that_limit
    a_pause_refuses_a_claim_that_waits_for_a_wider_limit_if_its_wait_ends_before
    a_pause_refuses_a_claim_that_waits_for_a_wider_limit_and_not_for_the_paused_one
    a_heavy_claim_keeps_its_place_before_a_light_one
    a_head_start_counts_in_a_pause
    flows_keep_their_turns_across_a_pause
    the_limit_of_an_operator_counts_after_a_pause
    usage_counts_and_keys_show_a_pause
    a_permit_pauses_the_key_of_each_of_its_policies_and_no_other
}

/// Longer than any of these tests.
const LONG: Duration = Duration::from_secs(600);

/// Far more than a test needs, and less than [`LONG`].
const SLACK: Duration = Duration::from_secs(60);

/// A pause that ends by itself, long enough for everything that a test does within it.
const SHORT: Duration = Duration::from_secs(2);

/// By how much a time may be wrong, because the server's clock yields whole milliseconds.
const TICK: Duration = Duration::from_millis(2);

async fn pause(store: &Store, time: Duration) {
    pause_key(store, &claim("a", 1), time).await;
}

async fn pause_key(store: &Store, claim: &Claim, time: Duration) {
    let paused = store.pause(claim.policy(), claim.key(), time, "");
    paused.await.expect("the store answers");
}

async fn resume(store: &Store) -> bool {
    resume_key(store, &claim("a", 1)).await
}

async fn resume_key(store: &Store, claim: &Claim) -> bool {
    let resumed = store.resume(claim.policy(), claim.key()).await;
    resumed.expect("the store answers")
}

/// The rest of the pause that refused a claim.
#[track_caller]
fn rest_of_pause(refused: Result<Permit, AcquireError>, claim: &Claim) -> Duration {
    match refused {
        Err(AcquireError::Paused {
            policy,
            retry_after,
            ..
        }) if policy == *claim.policy() => retry_after,
        answer => panic!("the key of {claim:?} is not paused: {answer:?}"),
    }
}

/// Asserts that a claim is refused because its key is paused for `time`, less a moment.
async fn assert_paused(store: &Store, claim: Claim, time: Duration) {
    let refused = within("it is answered", BOUND * 2, store.acquire(claim.clone()));
    let left = rest_of_pause(refused.await, &claim);
    assert!(left <= time && left + SLACK > time, "{left:?} of {time:?}");
}

async fn counts(store: &Store) -> KeyCounts {
    let counts = store.counts(&Policy::DEFAULT, &[StoredKey::whole("a")]);
    counts.await.expect("the store answers").remove(0)
}

async fn paused_now(store: &Store) -> Option<PauseInfo> {
    let usage = store.usage(&Policy::DEFAULT, &"a".into()).await;
    usage.expect("the store answers").pause
}

/// Spawns a claim, and returns once the queue has `count` waiters.
async fn waiter(store: &Store, claim: Claim, count: u32) -> Waiter {
    let waiter = tokio::spawn(store.acquire(claim.with_wait(LONG * 2)));
    until_waiting(store, count).await;
    waiter
}

/// Waits until these claims are granted. Their tokens must rise in the given order. Each permit is released as soon as
/// it is granted.
async fn assert_order(waiters: Vec<Waiter>) {
    let granted = waiters.into_iter().map(async |waiter| {
        let permit = within("it is granted", BOUND * 2, granted(waiter)).await;
        let token = permit.token().expect("it is granted");
        assert!(permit.release().await);
        token
    });
    let tokens = join_all(granted).await;
    assert!(tokens.is_sorted(), "{tokens:?}");
}

async fn a_paused_key_grants_nothing_and_refuses_with_the_remaining_time(store: Store) {
    pause(&store, LONG).await;
    let first = rest_of_pause(store.acquire(claim("a", 5)).await, &claim("a", 5));
    sleep(TICK * 2).await;
    for _ in 0..20 {
        let refused = store.acquire(claim("a", 5)).await;
        assert!(
            matches!(refused, Err(AcquireError::Paused { limit: 5, .. })),
            "{refused:?}"
        );
        let left = rest_of_pause(refused, &claim("a", 5));
        assert!(left < first && left + SLACK > LONG, "{left:?}");
    }
}

async fn another_key_and_the_key_under_another_policy_are_not_paused(store: Store) {
    pause(&store, LONG).await;
    assert_paused(&store, claim("a", 1), LONG).await;
    for other in [claim("b", 1), claim("a", 1).with_policy("other")] {
        let permit = store.acquire(other.clone()).await;
        permit.expect("it is another semaphore").release().await;
        assert!(!resume_key(&store, &other).await);
    }
    assert_paused(&store, claim("a", 1), LONG).await;
}

async fn holders_keep_their_permits_and_a_release_grants_nothing(store: Store) {
    let permits = super::fill(&store, &claim("a", 2)).await;
    let waiter = waiter(&store, claim("a", 2), 1).await;
    pause(&store, LONG).await;
    for permit in permits {
        assert!(!permit.is_lost());
        assert!(permit.release().await);
    }
    assert_paused(&store, claim("a", 2), LONG).await;
    let counts = counts(&store).await;
    assert_eq!((counts.units, counts.waiting), (0, 1));
    assert!(!waiter.is_finished());
    assert!(resume(&store).await);
    drop(granted(waiter).await);
}

/// The waiters include claims that joined before the pause and claims that joined during it.
async fn waiters_keep_their_order_and_none_is_granted_before_the_end(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let mut waiters = Vec::new();
    for count in 1..=3 {
        waiters.push(waiter(&store, claim("a", 1), count).await);
    }
    let start = Instant::now();
    pause(&store, SHORT * 2).await;
    assert!(held.release().await);
    for count in 4..=6 {
        waiters.push(waiter(&store, claim("a", 1), count).await);
    }
    let timed = waiters.into_iter().map(|waiter| {
        tokio::spawn(async move {
            let permit = granted(waiter).await;
            assert!(start.elapsed() + TICK >= SHORT * 2, "{:?}", start.elapsed());
            Ok(permit)
        })
    });
    assert_order(timed.collect()).await;
    assert_eq!(paused_now(&store).await, None);
}

/// On a busy machine some grants may be late, but not all ten.
async fn the_first_waiter_is_granted_soon_after_the_end(store: Store) {
    let (length, mut late) = (Duration::from_millis(200), Vec::new());
    while late.len() < 10 {
        pause(&store, length).await;
        let start = Instant::now();
        let waits = claim("a", 1).with_wait(BOUND);
        let permit = store.acquire(waits).await.expect("the pause ends");
        let after = start.elapsed().saturating_sub(length);
        assert!(permit.release().await);
        if after < Duration::from_millis(25) {
            return;
        }
        late.push(after);
    }
    panic!("late by {late:?}");
}

async fn a_claim_that_does_not_wait_is_granted_after_the_end(store: Store) {
    let start = Instant::now();
    pause(&store, SHORT / 2).await;
    eventually("it is granted", BOUND, async || {
        let answer = store.acquire(claim("a", 1)).await;
        if answer.is_err() {
            let left = rest_of_pause(answer, &claim("a", 1));
            assert!(left <= SHORT / 2, "{left:?}");
            return false;
        }
        assert!(start.elapsed() + TICK >= SHORT / 2);
        true
    })
    .await;
    // The budgets of the key are paused a moment later than the key, and for as long.
    sleep(SHORT / 2).await;
    assert!(!resume(&store).await, "it is over");
}

async fn a_shorter_or_empty_pause_changes_nothing_and_a_longer_one_counts(store: Store) {
    let empty = [Duration::ZERO, Duration::from_micros(900)];
    for empty in empty {
        pause(&store, empty).await;
        assert_eq!(paused_now(&store).await, None);
        let permit = store.acquire(claim("a", 1)).await;
        assert!(permit.expect("it is not paused").release().await);
    }
    pause(&store, LONG).await;
    let first = paused_now(&store).await;
    for shorter in empty.into_iter().chain([TICK, LONG - SLACK]) {
        pause(&store, shorter).await;
        assert_eq!(paused_now(&store).await, first);
        assert_paused(&store, claim("a", 1), LONG).await;
    }
    pause(&store, LONG * 2).await;
    assert_paused(&store, claim("a", 1), LONG * 2).await;
    let longer = paused_now(&store).await.expect("it is paused");
    let first = first.expect("it is paused");
    assert!(longer.until > first.until && longer.since >= first.since);
}

async fn a_pause_that_is_made_longer_holds_back_the_waiters(store: Store) {
    pause(&store, SHORT).await;
    let mut waiters = Vec::new();
    for count in 1..=2 {
        waiters.push(waiter(&store, claim("a", 1), count).await);
    }
    let short = claim("a", 1).with_wait(SHORT * 3);
    let short = tokio::spawn(store.acquire(short));
    until_waiting(&store, 3).await;
    pause(&store, LONG).await;
    let refused = within("it is refused", SHORT * 20, short).await;
    rest_of_pause(refused.expect("no panic"), &claim("a", 1));
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert!(resume(&store).await);
    assert_order(waiters).await;
}

async fn a_pause_without_an_end_lasts_for_the_longest_time(store: Store) {
    pause(&store, Duration::MAX).await;
    assert_paused(&store, claim("a", 1), MAX_PAUSE).await;
    let pause = paused_now(&store).await.expect("it is paused");
    let length = pause.until.duration_since(pause.since).expect("no less");
    assert!(length <= MAX_PAUSE + TICK && length + TICK > MAX_PAUSE);
    assert!(resume(&store).await);
}

async fn a_pause_that_is_never_polled_or_has_no_key_pauses_nothing(store: Store) {
    drop(store.pause(&Policy::DEFAULT, &"a".into(), LONG, ""));
    assert!(store.acquire(claim("a", 1)).await.is_ok());
    let empty = store.pause(&Policy::DEFAULT, &"".into(), LONG, "");
    assert!(empty.await.is_err());
    // The policy of locks is reserved.
    let lock = store.pause(&Policy::from("lock"), &"a".into(), LONG, "");
    assert!(lock.await.is_err());
}

async fn resume_grants_the_waiters_and_reports_if_the_key_was_paused(store: Store) {
    assert!(!resume(&store).await);
    pause(&store, LONG).await;
    let mut waiters = Vec::new();
    for count in 1..=3 {
        waiters.push(waiter(&store, claim("a", 2), count).await);
    }
    assert!(resume(&store).await);
    let last = waiters.pop().expect("there are three");
    let mut permits = Vec::new();
    for waiter in waiters {
        permits.push(within("it is granted", BOUND, granted(waiter)).await);
    }
    assert!(!last.is_finished(), "two units");
    assert!(!resume(&store).await);
    drop(permits);
    drop(granted(last).await);
}

async fn a_wait_that_would_end_before_the_pause_is_refused_at_once(store: Store) {
    pause(&store, LONG).await;
    let waits = claim("a", 1).with_wait(LONG / 2);
    assert_paused(&store, waits, LONG).await;
    assert_eq!(counts(&store).await.waiting, 0);
}

async fn a_claim_that_waits_already_is_refused_if_its_wait_ends_before_the_pause(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let waits = tokio::spawn(store.acquire(claim("a", 1).with_wait(SLACK)));
    until_waiting(&store, 1).await;
    let patient = waiter(&store, claim("a", 1), 2).await;
    pause(&store, LONG).await;
    let refused = within("it is refused", BOUND * 2, waits).await;
    rest_of_pause(refused.expect("no panic"), &claim("a", 1));
    until_waiting(&store, 1).await;
    assert!(held.release().await && resume(&store).await);
    drop(granted(patient).await);
}

async fn a_pause_counts_as_no_waiter(store: Store) {
    pause(&store, LONG).await;
    let alone = claim("a", 1).with_max_waiting(1);
    let first = waiter(&store, alone.clone(), 1).await;
    assert_paused(&store, alone.with_wait(LONG * 2), LONG).await;
    let none = claim("a", 1).with_max_waiting(0).with_wait(LONG * 2);
    assert_paused(&store, none, LONG).await;
    let second = waiter(&store, claim("a", 1).with_max_waiting(2), 2).await;
    assert!(resume(&store).await);
    assert_order(vec![first, second]).await;
}

async fn a_waiter_that_leaves_in_a_pause_leaves_nothing_behind(store: Store) {
    pause(&store, LONG).await;
    let mut waiters = Vec::new();
    for count in 1..=4 {
        waiters.push(waiter(&store, claim("a", 1), count).await);
    }
    for index in [2, 0] {
        let gone = waiters.remove(index);
        gone.abort();
        assert!(gone.await.is_err(), "it waits");
    }
    until_waiting(&store, 2).await;
    assert_paused(&store, claim("a", 1), LONG).await;
    assert!(resume(&store).await);
    assert_order(waiters).await;
    pause(&store, LONG).await;
    let gone = waiter(&store, claim("a", 1), 1).await;
    gone.abort();
    until_waiting(&store, 0).await;
    assert_paused(&store, claim("a", 1), LONG).await;
    assert!(resume(&store).await);
    until_held(&store, &[claim("a", 1)], &[0]).await;
}

async fn a_growth_is_refused_and_a_smaller_weight_is_not(store: Store) {
    let permit = store.acquire(claim("a", 5).with_weight(3)).await;
    let permit = permit.expect("there is room");
    pause(&store, LONG).await;
    let refused = permit.resize(4).await.expect_err("it is paused");
    rest_of_pause(Err(refused), &claim("a", 5));
    assert_eq!(permit.weight(), 3);
    permit.resize(1).await.expect("it becomes lighter");
    let refused = permit.resize(2).await.expect_err("it is paused");
    rest_of_pause(Err(refused), &claim("a", 5));
    assert_eq!(counts(&store).await.units, 1);
    assert!(resume(&store).await);
    permit.resize(5).await.expect("there is room");
    assert!(permit.release().await);
}

async fn a_paused_level_refuses_and_nothing_of_the_others_is_taken(store: Store) {
    let claims = claims("ann", [3, 3, 3]);
    for (number, level) in claims.iter().enumerate() {
        pause_key(&store, level, LONG).await;
        let refused = store.acquire_all(claims.clone().into()).await;
        rest_of_pause(refused, level);
        let waits = claims.clone().map(|claim| claim.with_wait(LONG / 2));
        let refused = store.acquire_all(waits.into());
        rest_of_pause(within("it is answered", BOUND * 2, refused).await, level);
        let mut others = claims.to_vec();
        let _ = others.remove(number);
        until_held(&store, &others, &[0, 0]).await;
        let permit = store.acquire_all(others.into()).await;
        assert!(permit.expect("they are not paused").release().await);
        assert!(resume_key(&store, level).await);
    }
    assert!(store.acquire_all(claims.into()).await.is_ok());
}

async fn a_claim_of_several_levels_waits_at_the_paused_one_and_keeps_the_narrower_ones(
    store: Store,
) {
    let claims = claims("ann", [2, 2, 2]);
    for (number, level) in claims.iter().enumerate() {
        // The pause must be shorter than these claims' wait, which is `BOUND`.
        pause_key(&store, level, BOUND * 3 / 4).await;
        let waiter = spawn(&store, &claims);
        until_held(&store, &claims[..number], &[1, 1][..number]).await;
        assert!(!waiter.is_finished());
        assert!(resume_key(&store, level).await);
        let permit = within("it is granted", BOUND, granted(waiter)).await;
        until_held(&store, &claims, &[1, 1, 1]).await;
        assert!(permit.release().await);
    }
}

/// Returns a waiter that holds units of two limits and waits for the third, the permit that blocks it, and its claims.
async fn waits_for_the_widest(store: &Store) -> (Waiter, Permit, [Claim; 3]) {
    let claims = claims("ann", [2, 2, 1]);
    let held = store.acquire(claims[2].clone()).await;
    let held = held.expect("there is room");
    let waiter = spawn(store, &claims);
    until_held(store, &claims, &[1, 1, 1]).await;
    (waiter, held, claims)
}

async fn a_pause_holds_back_a_claim_that_waits_for_a_wider_limit_and_no_other_waiter_of_that_limit(
    store: Store,
) {
    for paused in 0..2 {
        let (waiter, held, claims) = waits_for_the_widest(&store).await;
        let paused_at = Instant::now();
        pause_key(&store, &claims[paused], SHORT).await;
        assert!(held.release().await);
        let other = store.acquire(claims[2].clone().with_wait(BOUND));
        let other = within("the widest limit is free", BOUND, other).await;
        // On a busy machine the pause may already be over.
        let is_before = paused_at.elapsed() < SHORT - TICK;
        assert!(!waiter.is_finished() || !is_before);
        assert!(other.expect("there is room").release().await);
        let permit = within("it is granted", BOUND, granted(waiter)).await;
        assert!(
            paused_at.elapsed() >= SHORT - TICK,
            "{:?}",
            paused_at.elapsed()
        );
        until_held(&store, &claims, &[1, 1, 1]).await;
        assert!(permit.release().await);
    }
}

async fn a_pause_refuses_a_claim_that_waits_for_a_wider_limit_if_its_wait_ends_before(
    store: Store,
) {
    for paused in 0..2 {
        let (waiter, held, claims) = waits_for_the_widest(&store).await;
        pause_key(&store, &claims[paused], LONG).await;
        assert!(held.release().await);
        let refused = within("it is refused", BOUND, waiter).await;
        let left = rest_of_pause(refused.expect("no panic"), &claims[paused]);
        assert!(left <= LONG && left + SLACK > LONG, "{left:?}");
        assert!(resume_key(&store, &claims[paused]).await);
        until_held(&store, &claims, &[0, 0, 0]).await;
    }
}

async fn a_pause_refuses_a_claim_that_waits_for_a_wider_limit_and_not_for_the_paused_one(
    store: Store,
) {
    let [_, narrow, wide] = claims("ann", [2, 2, 1]);
    let held = store.acquire(wide.clone()).await.expect("there is room");
    let all = [narrow.clone(), wide.clone()];
    let waits = [narrow.clone(), wide.clone().with_wait(BOUND)];
    let waiter = tokio::spawn(store.acquire_all(waits.into()));
    until_queued(&store, &wide, 1).await;
    pause_key(&store, &narrow, LONG).await;
    assert!(held.release().await);
    let refused = within("it is refused", BOUND, waiter).await;
    let left = rest_of_pause(refused.expect("no panic"), &narrow);
    assert!(left <= LONG && left + SLACK > LONG, "{left:?}");
    assert!(resume_key(&store, &narrow).await);
    until_held(&store, &all, &[0, 0]).await;
}

async fn a_heavy_claim_keeps_its_place_before_a_light_one(store: Store) {
    pause(&store, LONG).await;
    let heavy = waiter(&store, claim("a", 3).with_weight(3), 1).await;
    let light = waiter(&store, claim("a", 3), 2).await;
    assert!(resume(&store).await);
    let heavy = within("it is granted", BOUND, granted(heavy)).await;
    assert!(!light.is_finished());
    pause(&store, LONG).await;
    assert!(heavy.release().await);
    assert_eq!(counts(&store).await.waiting, 1);
    assert!(resume(&store).await);
    drop(granted(light).await);
}

async fn a_head_start_counts_in_a_pause(store: Store) {
    pause(&store, LONG).await;
    let batch = waiter(&store, claim("a", 1), 1).await;
    let interactive = claim("a", 1).with_head_start(SLACK);
    let interactive = waiter(&store, interactive, 2).await;
    assert!(resume(&store).await);
    assert_order(vec![interactive, batch]).await;
}

/// A flow that arrives during the pause has no turns saved up, and the other flows keep theirs.
async fn flows_keep_their_turns_across_a_pause(store: Store) {
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let (mut waiters, mut count) = (Vec::new(), 0);
    let mut turns = async |flows: &[&'static str]| {
        for flow in flows {
            count += 1;
            let claim = claim("a", 1).with_flow(*flow);
            waiters.push((*flow, waiter(&store, claim, count).await));
        }
    };
    turns(&["ann", "ann", "ann", "bob"]).await;
    pause(&store, LONG).await;
    turns(&["cid", "bob", "ann", "cid", "cid"]).await;
    assert!(held.release().await && resume(&store).await);
    let granted = waiters.into_iter().map(async |(flow, waiter)| {
        let permit = granted(waiter).await;
        let token = permit.token().expect("it is granted");
        assert!(permit.release().await);
        (token, flow)
    });
    let mut granted = join_all(granted).await;
    granted.sort_unstable();
    let order: Vec<_> = granted.into_iter().map(|(_, flow)| flow).collect();
    let expected = [
        "ann", "bob", "cid", "ann", "bob", "cid", "ann", "cid", "ann",
    ];
    assert_eq!(order, expected);
}

async fn the_limit_of_an_operator_counts_after_a_pause(store: Store) {
    let (policy, key) = (Policy::DEFAULT, "a".into());
    pause(&store, LONG).await;
    let mut waiters = Vec::new();
    for count in 1..=2 {
        waiters.push(waiter(&store, claim("a", 5), count).await);
    }
    let set = store.set_limit(&policy, Some(&key), Some(1), "");
    set.await.expect("the store answers");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert_paused(&store, claim("a", 5), LONG).await;
    assert!(resume(&store).await);
    let last = waiters.pop().expect("there are two");
    let first = waiters.pop().expect("there are two");
    let first = within("it is granted", BOUND, granted(first)).await;
    let refused = store.acquire(claim("a", 5)).await;
    assert!(
        matches!(refused, Err(AcquireError::Full { limit: 1, .. })),
        "{refused:?}"
    );
    assert!(!last.is_finished());
    pause(&store, LONG).await;
    let closed = store.set_limit(&policy, Some(&key), Some(0), "");
    closed.await.expect("the store answers");
    let refused = within("it is refused", BOUND * 2, last).await;
    for refused in [
        refused.expect("no panic"),
        store.acquire(claim("a", 5)).await,
    ] {
        assert!(
            matches!(refused, Err(AcquireError::KeyClosed { .. })),
            "{refused:?}"
        );
    }
    drop(first);
}

async fn listed(store: &Store) -> Vec<StoredKey> {
    let keys = store.keys(&Policy::DEFAULT);
    keys.map(|key| key.expect("the store answers"))
        .collect()
        .await
}

async fn usage_counts_and_keys_show_a_pause(store: Store) {
    assert_eq!(listed(&store).await, []);
    // In Redis, `.!.` marks the entry of a pause.
    let (policy, key, note) = (Policy::DEFAULT, "a".into(), "429, »later«: 5.!.x");
    let paused_at = SystemTime::now();
    let paused = store.pause(&policy, &key, LONG, note).await;
    paused.expect("the store answers");
    let usage = store.usage(&policy, &key).await;
    let usage = usage.expect("the store answers");
    let pause = usage.pause.clone().expect("it is paused");
    assert_eq!(pause.note.as_deref(), Some(note));
    let length = pause.until.duration_since(pause.since).expect("no less");
    assert!(length <= LONG + TICK && length + TICK >= LONG, "{length:?}");
    let apart = match pause.since.duration_since(paused_at) {
        Ok(apart) => apart,
        Err(before) => before.duration(),
    };
    assert!(apart < SLACK && pause.since <= usage.now, "{pause:?}");
    assert!(usage.held.is_empty() && usage.waiting.is_empty());
    assert_eq!(usage.units, 0);

    let counts = counts(&store).await;
    assert_eq!((counts.units, counts.waiting), (0, 0));
    assert_eq!(counts.pause.as_ref(), Some(&pause));
    assert_eq!(listed(&store).await, [StoredKey::whole("a")]);
    let page = store.keys_page(&policy, None, BOUND).await;
    let page = page.expect("the store answers").expect("the first page");
    assert_eq!(page.keys, [StoredKey::whole("a")]);

    let _waiter = waiter(&store, claim("a", 1), 1).await;
    let usage = store.usage(&policy, &key).await;
    let usage = usage.expect("the store answers");
    assert_eq!((usage.waiting.len(), usage.pause), (1, Some(pause)));

    store
        .pause(&policy, &key, LONG * 2, "")
        .await
        .expect("the store answers");
    let longer = paused_now(&store).await.expect("it is paused");
    assert_eq!(longer.note, None);
    assert!(resume(&store).await);
    assert_eq!(paused_now(&store).await, None);
}

async fn a_permit_pauses_the_key_of_each_of_its_policies_and_no_other(store: Store) {
    let claims = claims("ann", [3, 3, 3]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    let missing = permit.pause("nobody", LONG, "").await;
    assert!(
        matches!(
            missing,
            Err(AcquireError::Invalid {
                source: ClaimError::NoLevel,
                ..
            })
        ),
        "{missing:?}"
    );
    for level in &claims {
        let paused = permit.pause(level.policy().clone(), LONG, "upstream").await;
        paused.expect("the store answers");
        assert_paused(&store, level.clone(), LONG).await;
        let usage = store.usage(level.policy(), level.key()).await;
        let pause = usage.expect("the store answers").pause;
        assert_eq!(
            pause.and_then(|pause| pause.note).as_deref(),
            Some("upstream")
        );
        let shorter = permit.pause(level.policy().clone(), SLACK, "").await;
        shorter.expect("the store answers");
        assert_paused(&store, level.clone(), LONG).await;
        assert!(resume_key(&store, level).await);
        let other = store.acquire(level.clone()).await;
        assert!(other.expect("it is resumed").release().await);
    }
    assert!(!permit.is_lost());
    assert!(permit.release().await);
}
