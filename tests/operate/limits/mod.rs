//! Limits that operators set. Each fact (a test) runs with every store.

#[cfg(feature = "redis")]
mod in_redis;

use futures_util::StreamExt;
use std::time::{Duration, SystemTime};
use testing::stores::{Store, facts_of_operators};
use testing::wait::eventually;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tower_semaphore::{
    AcquireError, Claim, Claims, Key, Lock, Permit, Policy,
    semaphore::{ClaimError, Level, LimitInfo, StoredKey},
};

facts_of_operators! {
    a_limit_that_was_set_decides_the_next_claim_of_its_own_process
    the_limit_of_a_key_overrides_that_of_its_policy_which_overrides_the_claims
    a_lower_limit_ends_no_permit_and_grants_nothing_until_there_is_room
    a_higher_limit_grants_waiters_in_the_order_of_the_queue
    a_limit_of_0_closes_a_key_and_refuses_its_waiters
    a_claim_that_is_heavier_than_the_limit_is_refused_as_full_and_does_not_wait
    a_waiters_own_limit_counts_again_once_the_operators_limit_is_removed
    a_limit_that_is_never_polled_sets_nothing
    limits_are_listed_with_their_notes
    no_limit_can_be_set_for_a_lock
    a_permit_grows_under_the_limit_in_force
    each_level_of_a_permit_has_the_limit_in_force
    a_claim_that_waits_at_its_second_limit_keeps_its_unit_of_the_first
    while_limits_change_every_claim_is_answered_and_nothing_is_left
}

/// Generous, for busy machines. No fact here measures time.
const BOUND: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(600);
const MOMENT: Duration = Duration::from_millis(5);

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

async fn granted(store: &Store, claim: Claim) -> Permit {
    store.acquire(claim).await.expect("there is room")
}

/// Sets a limit of the key, or of the policy if no key is given.
async fn set(store: &Store, key: Option<&str>, limit: Option<u32>) {
    let key = key.map(Key::from);
    let set = store.set_limit(&Policy::DEFAULT, key.as_ref(), limit, "");
    set.await.expect("the store answers");
}

/// Returns once this limit of the key is in force in the process of this store; for `None`, once none is.
async fn until_in_force(store: &Store, key: &str, limit: Option<u32>) {
    let key = Key::from(key);
    eventually("the limit is in force", BOUND, async || {
        known(store, &Policy::DEFAULT, &key).await == limit
    })
    .await;
}

/// The limit of a key that an operator has set, as this store's process knows it.
async fn known(store: &Store, policy: &Policy, key: &Key) -> Option<u32> {
    let usage = store.usage(policy, key).await;
    let usage = usage.expect("the store answers");
    usage.limit.filter(|_| usage.is_limit_set)
}

/// Sets the limit of the key `a`, and returns once it is in force.
async fn limited(store: &Store, limit: Option<u32>) {
    set(store, Some("a"), limit).await;
    until_in_force(store, "a", limit).await;
}

async fn assert_full(store: &Store, claim: Claim, limit: u32) {
    let refused = store.acquire(claim).await;
    assert!(
        matches!(&refused, Err(AcquireError::Full { limit: own, .. }) if *own == limit),
        "{refused:?}"
    );
}

fn assert_closed(answer: &Result<Permit, AcquireError>) {
    let is_closed =
        matches!(answer, Err(AcquireError::KeyClosed { policy, .. }) if *policy == Policy::DEFAULT);
    assert!(is_closed, "{answer:?}");
}

type Waiter = JoinHandle<Result<Permit, AcquireError>>;

/// A claim that waits behind `before` others.
async fn waits(store: &Store, claim: Claim, before: usize) -> Waiter {
    let waiter = tokio::spawn(store.acquire(claim.with_wait(LONG)));
    eventually("it waits", BOUND, async || {
        waiting(store).await == before + 1
    })
    .await;
    waiter
}

async fn waiting(store: &Store) -> usize {
    let usage = store.usage(&Policy::DEFAULT, &"a".into()).await;
    usage.expect("the store answers").waiting.len()
}

async fn answer(waiter: Waiter) -> Result<Permit, AcquireError> {
    let answer = timeout(BOUND, waiter).await;
    answer.expect("it is answered").expect("no panic")
}

async fn a_limit_that_was_set_decides_the_next_claim_of_its_own_process(store: Store) {
    // Three times from 1 up to 10 and down to 3.
    for limit in (1..=10).chain([3]).cycle().take(33) {
        set(&store, Some("a"), Some(limit)).await;
        let known = known(&store, &Policy::DEFAULT, &"a".into()).await;
        assert_eq!(known, Some(limit));
        assert_eq!(granted(&store, claim(20)).await.limit(), limit);
    }
    set(&store, Some("a"), Some(0)).await;
    assert_closed(&store.acquire(claim(20)).await);
    set(&store, Some("a"), None).await;
    assert_eq!(granted(&store, claim(20)).await.limit(), 20);
}

async fn the_limit_of_a_key_overrides_that_of_its_policy_which_overrides_the_claims(store: Store) {
    assert_eq!(granted(&store, claim(5)).await.limit(), 5);
    set(&store, None, Some(2)).await;
    until_in_force(&store, "a", Some(2)).await;
    let permit = granted(&store, claim(5)).await;
    assert_eq!((permit.limit(), permit.remaining()), (2, 1));
    limited(&store, Some(1)).await;
    assert_full(&store, claim(5), 1).await;
    let usage = store.usage(&Policy::DEFAULT, &"a".into()).await;
    let usage = usage.expect("the store answers");
    assert_eq!((usage.limit, usage.is_limit_set), (Some(1), true));
    let other = Claim::new("b").with_limit(1).with_policy("other");
    assert_eq!(granted(&store, other).await.limit(), 1);
    assert_eq!(
        granted(&store, Claim::new("b").with_limit(9)).await.limit(),
        2
    );
    limited(&store, Some(7)).await;
    assert_eq!(granted(&store, claim(5)).await.limit(), 7);
    set(&store, Some("a"), None).await;
    until_in_force(&store, "a", Some(2)).await;
    set(&store, None, None).await;
    until_in_force(&store, "a", None).await;
    assert_eq!(granted(&store, claim(5)).await.limit(), 5);
}

async fn a_lower_limit_ends_no_permit_and_grants_nothing_until_there_is_room(store: Store) {
    let first = granted(&store, claim(3)).await;
    let second = granted(&store, claim(3)).await;
    limited(&store, Some(1)).await;
    let waiter = waits(&store, claim(3), 0).await;
    assert_full(&store, claim(3), 1).await;
    assert!(!first.is_lost() && !second.is_lost());
    assert!(first.release().await);
    assert_full(&store, claim(3), 1).await;
    assert!(!waiter.is_finished());
    assert!(second.release().await);
    assert_eq!(answer(waiter).await.expect("there is room").limit(), 1);
}

async fn a_higher_limit_grants_waiters_in_the_order_of_the_queue(store: Store) {
    let held = granted(&store, claim(1)).await;
    let mut waiters = Vec::new();
    for before in 0..4 {
        waiters.push(waits(&store, claim(1), before).await);
    }
    limited(&store, Some(3)).await;
    let mut granted = Vec::new();
    for waiter in waiters.drain(..2) {
        granted.push(answer(waiter).await.expect("there is room"));
    }
    assert!(granted.iter().all(|permit| permit.limit() == 3));
    assert!(granted[0].token() < granted[1].token());
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert_eq!(waiting(&store).await, 2);
    drop(held);
    drop(answer(waiters.remove(0)).await.expect("there is room"));
}

async fn a_limit_of_0_closes_a_key_and_refuses_its_waiters(store: Store) {
    let held = granted(&store, claim(1)).await;
    let waiters = [
        waits(&store, claim(1), 0).await,
        waits(&store, claim(1), 1).await,
    ];
    limited(&store, Some(0)).await;
    for waiter in waiters {
        assert_closed(&answer(waiter).await);
    }
    assert_closed(&store.acquire(claim(1)).await);
    assert_closed(&store.acquire(claim(1).with_wait(LONG)).await);
    assert!(!held.is_lost());
    assert!(held.release().await);
    assert_closed(&store.acquire(claim(1)).await);
    limited(&store, None).await;
    drop(granted(&store, claim(1)).await);
}

async fn a_claim_that_is_heavier_than_the_limit_is_refused_as_full_and_does_not_wait(store: Store) {
    let _held = granted(&store, claim(5)).await;
    let heavy = waits(&store, claim(5).with_weight(5), 0).await;
    let light = waits(&store, claim(5), 1).await;
    limited(&store, Some(4)).await;
    let refused = answer(heavy).await;
    assert!(
        matches!(refused, Err(AcquireError::Full { limit: 4, .. })),
        "{refused:?}"
    );
    drop(answer(light).await.expect("there is room"));
    assert_full(&store, claim(5).with_weight(5).with_wait(LONG), 4).await;
    // The claim itself is wrong, whatever limits operators set.
    limited(&store, Some(9)).await;
    let answer = store.acquire(claim(5).with_weight(6)).await;
    assert!(matches!(
        answer,
        Err(AcquireError::Invalid {
            source: ClaimError::TooHeavy { .. },
            ..
        })
    ));
}

async fn a_waiters_own_limit_counts_again_once_the_operators_limit_is_removed(store: Store) {
    limited(&store, Some(1)).await;
    let _held = granted(&store, claim(2)).await;
    let waiter = waits(&store, claim(2), 0).await;
    limited(&store, None).await;
    assert_eq!(answer(waiter).await.expect("there is room").limit(), 2);
}

async fn a_limit_that_is_never_polled_sets_nothing(store: Store) {
    drop(store.set_limit(&Policy::DEFAULT, None, Some(0), ""));
    drop(granted(&store, claim(1)).await);
    assert_eq!(limits(&store).await, []);
}

async fn limits(store: &Store) -> Vec<LimitInfo> {
    let limits = store.limits();
    limits
        .map(|limit| limit.expect("the store answers"))
        .collect()
        .await
}

async fn limits_are_listed_with_their_notes(store: Store) {
    let hostile = "}*version :\n\u{1b}[2J\0\u{fc}";
    let long = "n".repeat(1_000);
    let policy = Policy::from("a:b {c}");
    for (key, limit, note) in [
        (None, 0, "closed\n\u{1b}[2J for the night"),
        (Some(hostile), u32::MAX, ""),
        (Some("a"), 1, &long),
    ] {
        let key = key.map(Key::from);
        let set = store.set_limit(&policy, key.as_ref(), Some(limit), note);
        set.await.expect("the store answers");
    }
    let mut listed = limits(&store).await;
    listed.sort_by_key(|info| info.limit);
    let now = SystemTime::now();
    for (info, key, note) in [
        (
            &listed[0],
            None,
            Some("closed\n\u{1b}[2J for the night".to_owned()),
        ),
        // A longer note is cut.
        (&listed[1], Some("a"), Some("n".repeat(128))),
        (&listed[2], Some(hostile), None),
    ] {
        assert_eq!(info.policy, policy);
        assert_eq!(info.key, key.map(StoredKey::whole));
        assert_eq!(info.note, note);
        let age = now.duration_since(info.since).unwrap_or_default();
        assert!(age < BOUND, "{age:?}");
    }
    assert_eq!(listed[2].limit, u32::MAX);
    for info in listed {
        let key = match info.key {
            Some(StoredKey::Whole { key, .. }) => Some(key),
            _ => None,
        };
        let away = store.set_limit(&info.policy, key.as_ref(), None, "");
        away.await.expect("the store answers");
    }
    assert_eq!(limits(&store).await, []);
}

async fn no_limit_can_be_set_for_a_lock(store: Store) {
    let (policy, key) = (Policy::from("lock"), Key::from("a"));
    for key in [None, Some(&key)] {
        assert!(store.set_limit(&policy, key, Some(2), "").await.is_err());
    }
    // Nor for an empty key.
    assert!(
        store
            .set_limit(&Policy::DEFAULT, Some(&"".into()), Some(2), "")
            .await
            .is_err()
    );
    assert_eq!(limits(&store).await, []);
    let lock = Lock::new(store, "a");
    let _guard = lock.try_acquire().await.expect("it is free");
    assert!(lock.try_acquire().await.is_err());
}

async fn a_permit_grows_under_the_limit_in_force(store: Store) {
    let permit = granted(&store, claim(5)).await;
    limited(&store, Some(2)).await;
    permit.resize(2).await.expect("there is room");
    let refused = permit.resize(3).await;
    assert!(
        matches!(
            refused,
            Err(AcquireError::Invalid {
                source: ClaimError::TooHeavy { limit: 2, .. },
                ..
            })
        ),
        "{refused:?}"
    );
    limited(&store, Some(8)).await;
    permit.resize(8).await.expect("there is room");
    limited(&store, Some(9)).await;
    let _other = granted(&store, claim(1)).await;
    let refused = permit.resize(9).await;
    assert!(
        matches!(refused, Err(AcquireError::Full { limit: 9, .. })),
        "{refused:?}"
    );
    // A permit above the limit may shrink, even if it stays above the limit.
    limited(&store, Some(0)).await;
    permit.resize(7).await.expect("it shrinks");
    assert!(permit.resize(8).await.is_err(), "that is above the limit");
    limited(&store, None).await;
    permit.resize(4).await.expect("it shrinks");
    assert!(
        permit.resize(6).await.is_err(),
        "that is above its claim's limit"
    );
    assert_eq!(permit.weight(), 4);
}

async fn each_level_of_a_permit_has_the_limit_in_force(store: Store) {
    let wide = Claim::new("all").with_policy("fleet").with_limit(9);
    let policy = Policy::from("fleet");
    let set = store.set_limit(&policy, None, Some(1), "");
    set.await.expect("the store answers");
    eventually("it is in force", BOUND, async || {
        known(&store, &policy, &"all".into()).await == Some(1)
    })
    .await;
    let both = [claim(5), wide];
    let permit = store.acquire_all(both.clone().into()).await;
    let permit = permit.expect("there is room");
    let limits: Vec<_> = permit.levels().map(Level::limit).collect();
    assert_eq!(limits, [5, 1]);
    let refused = store.acquire_all(both.into()).await;
    assert!(
        matches!(&refused, Err(AcquireError::Full { policy, limit: 1, .. }) if policy.as_str() == "fleet"),
        "{refused:?}"
    );
}

async fn a_claim_that_waits_at_its_second_limit_keeps_its_unit_of_the_first(store: Store) {
    let wide = Claim::new("all").with_policy("fleet").with_limit(1);
    let fleet = Policy::from("fleet");
    let _held = granted(&store, wide.clone()).await;
    let both = [claim(1), wide].map(|claim| claim.with_wait(LONG));
    let first = tokio::spawn(store.acquire_all(both.into()));
    eventually("it waits", BOUND, async || {
        let usage = store.usage(&fleet, &"all".into()).await;
        usage.is_ok_and(|usage| usage.waiting.len() == 1)
    })
    .await;
    let second = waits(&store, claim(1), 0).await;
    let set = store.set_limit(&fleet, None, Some(2), "");
    set.await.expect("the store answers");
    let permit = answer(first).await.expect("there is room");
    assert!(!second.is_finished());
    drop(permit);
    drop(answer(second).await.expect("there is room"));
}

/// Claims of several weights, flows and head starts, some of them under two limits. Each caller makes a
/// fixed number of claims.
async fn while_limits_change_every_claim_is_answered_and_nothing_is_left(store: Store) {
    let callers = (0..40).map(|caller| {
        let store = store.clone();
        async move {
            for turn in 0..25 {
                let answer = store.acquire_all(mixed(caller, turn)).await;
                match answer {
                    Ok(_permit) if turn % 3 == 0 => sleep(MOMENT).await,
                    Ok(_) | Err(AcquireError::Full { .. } | AcquireError::KeyClosed { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    let mut callers = callers.collect::<JoinSet<_>>();
    let (fleet, limits) = (
        Policy::from("fleet"),
        [Some(1), Some(5), None, Some(0), Some(2), Some(9)],
    );
    // The three limits repeat after different numbers of turns, so their combinations vary.
    for turn in 0..60 {
        set(&store, Some("a"), limits[turn % 6]).await;
        set(&store, None, limits[turn % 4]).await;
        let wide = store.set_limit(&fleet, None, limits[turn % 5], "");
        wide.await.expect("the store answers");
        sleep(MOMENT).await;
    }
    for key in [Some("a"), None] {
        set(&store, key, None).await;
    }
    let wide = store.set_limit(&fleet, None, None, "");
    wide.await.expect("the store answers");
    let all = async { while callers.join_next().await.is_some_and(|done| done.is_ok()) {} };
    timeout(BOUND, all).await.expect("each is answered");
    assert!(callers.is_empty(), "a caller has panicked");
    eventually("nothing is held", BOUND, async || {
        let usage = store.usage(&Policy::DEFAULT, &"a".into()).await;
        usage.is_ok_and(|usage| usage.units == 0 && usage.waiting.is_empty())
    })
    .await;
}

fn mixed(caller: u32, turn: u32) -> Claims {
    let wait = |claim: Claim| match turn % 7 {
        0 => claim,
        _ => claim.with_wait(LONG),
    };
    let narrow = wait(claim(4).with_weight(1 + (caller + turn) % 3));
    let narrow = match caller % 4 {
        0 => narrow.with_flow(format!("flow-{}", turn % 2)),
        1 => narrow.with_head_start(MOMENT * (turn % 5)),
        _ => narrow,
    };
    let wide = wait(Claim::new("all").with_policy("fleet").with_limit(6));
    match caller % 3 {
        0 => [narrow, wide].into(),
        _ => narrow.into(),
    }
}
