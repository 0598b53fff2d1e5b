//! Revocations of permits, of waiting claims, and of claims between the queue and their permit.

use super::{
    BOUND, Store, answer, assert_revoked, claim, facts_of_operators, first, granted, ids, queued,
    revoke, until_notified, usage, wait_for_usage, waiting,
};
use futures_util::{FutureExt, future::join_all};
use std::sync::Arc;
use testing::wait::eventually;
use tokio::time::timeout;
use tower_semaphore::{Acquire, AcquireError, Key, Lock, Policy, Semaphore};

facts_of_operators! {
    a_revoked_permit_is_lost_and_its_units_are_free
    a_revoked_permit_goes_to_the_next_in_the_queue
    a_permit_is_revoked_once
    a_revocation_that_is_never_polled_revokes_nothing
    a_revoked_permit_cannot_change_its_weight_and_its_release_returns_false
    all_units_of_a_permit_that_grew_and_shrank_are_free
    a_claim_that_waits_is_revoked
    a_revoked_claim_that_is_dropped_releases_nothing
    the_waiter_behind_a_revoked_head_is_granted
    a_permit_that_waited_is_revoked_by_the_id_that_it_had_in_the_queue
    one_limit_of_several_is_revoked_and_the_whole_permit_is_lost
    a_claim_that_waits_for_its_second_limit_is_revoked_at_its_first
    a_claim_that_is_granted_while_its_task_does_not_run_is_shown_and_revoked
    a_claim_that_is_granted_while_its_task_does_not_run_may_be_dropped
    a_lock_is_listed_and_revoked_under_the_policy_that_its_docs_name
}

async fn a_revoked_permit_is_lost_and_its_units_are_free(store: Store) {
    let heavy = claim("a", 5).with_weight(5);
    let permit = granted(&store, &heavy).await;
    let clone = permit.clone();
    let lost = tokio::spawn(async move { until_notified(&clone).await });
    assert!(revoke(&store, "a", &first(&store).await.id).await);
    let free = usage(&store, "a").await;
    assert_eq!((free.units, free.held.len()), (0, 0));
    let second = granted(&store, &heavy).await;
    lost.await.expect("it is notified");
    assert!(permit.is_lost() && !second.is_lost());
    drop(permit);
    assert!(second.release().await, "its drop touches no other");
}

async fn a_revoked_permit_goes_to_the_next_in_the_queue(store: Store) {
    let _permit = granted(&store, &claim("a", 1)).await;
    let (next, _) = queued(&store, waiting("a", 1).with_label("first"), 0).await;
    let (second, _) = queued(&store, waiting("a", 1).with_label("second"), 1).await;
    assert!(revoke(&store, "a", &first(&store).await.id).await);
    let next = answer(next).await.expect("a permit");
    assert!(!next.is_lost());
    let usage = wait_for_usage(&store, "a", "it holds", |usage| usage.held.len() == 1).await;
    assert_eq!(usage.held[0].label.as_deref(), Some("first"));
    assert_eq!(usage.waiting[0].label.as_deref(), Some("second"));
    second.abort();
}

async fn a_permit_is_revoked_once(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let id = first(&store).await.id;
    let (policy, key) = (&Policy::DEFAULT, "a".into());
    let answers = join_all((0..10).map(|_| store.revoke(policy, &key, &id))).await;
    let revoked = answers.iter().filter(|answer| matches!(answer, Ok(true)));
    assert_eq!(revoked.count(), 1);
    until_notified(&permit).await;
    assert!(!revoke(&store, "a", &id).await);
}

async fn a_revocation_that_is_never_polled_revokes_nothing(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let id = first(&store).await.id;
    drop(store.revoke(&Policy::DEFAULT, &"a".into(), &id));
    assert!(!permit.is_lost());
    assert!(permit.release().await, "it was still held");
}

async fn a_revoked_permit_cannot_change_its_weight_and_its_release_returns_false(store: Store) {
    let permit = granted(&store, &claim("a", 5).with_weight(2)).await;
    assert!(revoke(&store, "a", &first(&store).await.id).await);
    until_notified(&permit).await;
    // A store that finds a loss by a refresh learns a moment later that it is permanent.
    eventually("the loss is permanent", BOUND, async || {
        permit.weight() == 0
    })
    .await;
    for weight in [1, 2, 3] {
        assert!(permit.resize(weight).await.is_err(), "{weight}");
    }
    assert!(!permit.release().await);
    assert!(permit.is_lost());
    assert_eq!(usage(&store, "a").await.units, 0);
}

async fn all_units_of_a_permit_that_grew_and_shrank_are_free(store: Store) {
    for weights in [&[9][..], &[2], &[8, 3, 5], &[1, 9, 2, 6]] {
        let permit = granted(&store, &claim("a", 9).with_weight(4)).await;
        for weight in weights {
            permit.resize(*weight).await.expect("there is room");
        }
        let id = first(&store).await.id;
        assert!(revoke(&store, "a", &id).await, "{weights:?}");
        until_notified(&permit).await;
        // The owner gives up the added units.
        eventually("all is free", BOUND, async || {
            usage(&store, "a").await.units == 0
        })
        .await;
        let all = granted(&store, &claim("a", 9).with_weight(9)).await;
        drop(permit);
        assert!(all.release().await);
    }
}

async fn a_claim_that_waits_is_revoked(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let (waiter, info) = queued(&store, waiting("a", 1), 0).await;
    assert!(revoke(&store, "a", &info.id).await);
    assert!(!revoke(&store, "a", &info.id).await);
    let answer = answer(waiter).await;
    assert_revoked(&answer);
    assert!(answer.is_err_and(|error| error.is_refusal()));
    let usage = usage(&store, "a").await;
    assert_eq!((usage.units, usage.waiting.len()), (1, 0));
    assert!(!permit.is_lost());
    // The claim leaves nothing behind, and releases no unit that it never had.
    assert!(permit.release().await);
    let _all = granted(&store, &claim("a", 1)).await;
    assert!(store.acquire(claim("a", 1)).await.is_err());
}

async fn a_revoked_claim_that_is_dropped_releases_nothing(store: Store) {
    let _permit = granted(&store, &claim("a", 2).with_weight(2)).await;
    let (waiter, id) = stalled(&store).await;
    assert!(revoke(&store, "a", &id).await);
    drop(waiter);
    assert_eq!(usage(&store, "a").await.units, 2);
    assert!(store.acquire(claim("a", 2)).await.is_err());
}

async fn the_waiter_behind_a_revoked_head_is_granted(store: Store) {
    let _permit = granted(&store, &claim("a", 2)).await;
    let (heavy, info) = queued(&store, waiting("a", 2).with_weight(2), 0).await;
    let (light, _) = queued(&store, waiting("a", 2), 1).await;
    assert!(revoke(&store, "a", &info.id).await);
    assert_revoked(&answer(heavy).await);
    assert!(answer(light).await.is_ok());
}

async fn a_permit_that_waited_is_revoked_by_the_id_that_it_had_in_the_queue(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let (waiter, info) = queued(&store, waiting("a", 1), 0).await;
    drop(permit);
    let next = answer(waiter).await.expect("a permit");
    let is_it = |usage: &super::Usage| ids(&usage.held) == [&*info.id];
    wait_for_usage(&store, "a", "it holds", is_it).await;
    assert!(revoke(&store, "a", &info.id).await);
    until_notified(&next).await;
}

async fn one_limit_of_several_is_revoked_and_the_whole_permit_is_lost(store: Store) {
    let fleet = claim("all", 1).with_policy("fleet");
    let both = [claim("a", 1), fleet.clone()];
    let permit = store.acquire_all(both.into()).await.expect("there is room");
    assert!(revoke(&store, "a", &first(&store).await.id).await);
    until_notified(&permit).await;
    assert_eq!(usage(&store, "a").await.units, 0);
    // The drop frees the wider limit at the latest.
    drop(permit);
    let fleet = timeout(BOUND, store.acquire(fleet.with_wait(BOUND))).await;
    assert!(fleet.expect("an answer").is_ok());
}

async fn a_claim_that_waits_for_its_second_limit_is_revoked_at_its_first(store: Store) {
    let fleet = || waiting("all", 1).with_policy("fleet");
    let holder = granted(&store, &fleet()).await;
    let waiter = tokio::spawn(store.acquire_all([waiting("a", 1), fleet()].into()));
    let holds = |usage: &super::Usage| usage.held.len() == 1;
    let held = wait_for_usage(&store, "a", "it holds the first", holds).await;
    assert!(revoke(&store, "a", &held.held[0].id).await);
    assert_revoked(&answer(waiter).await);
    assert_eq!(usage(&store, "a").await.units, 0);
    eventually("it waits for nothing", BOUND, async || {
        let fleet = store.usage(&"fleet".into(), &"all".into()).await;
        fleet.expect("the store answers").waiting.is_empty()
    })
    .await;
    assert!(holder.release().await);
}

/// A claim for all units that waits and is no longer polled, with its id.
async fn stalled(store: &Store) -> (Acquire, String) {
    let mut acquire = store.acquire(waiting("a", 2).with_weight(2).with_label("stalled"));
    loop {
        assert!((&mut acquire).now_or_never().is_none(), "there is no room");
        let usage = usage(store, "a").await;
        if let Some(info) = usage.waiting.first() {
            return (acquire, info.id.clone());
        }
    }
}

/// A stalled claim that the store has granted since, which its task does not know yet, and its id.
async fn stalled_and_granted(store: &Store) -> (Acquire, String) {
    let permit = granted(store, &claim("a", 2).with_weight(2)).await;
    let (stalled, id) = stalled(store).await;
    drop(permit);
    wait_for_usage(store, "a", "it holds", |usage| ids(&usage.held) == [&*id]).await;
    (stalled, id)
}

async fn a_claim_that_is_granted_while_its_task_does_not_run_is_shown_and_revoked(store: Store) {
    let (stalled, id) = stalled_and_granted(&store).await;
    let usage = usage(&store, "a").await;
    assert_eq!((usage.units, usage.held[0].weight), (2, 2));
    assert_eq!(usage.held[0].label.as_deref(), Some("stalled"));
    assert!(usage.waiting.is_empty());
    assert!(revoke(&store, "a", &id).await);
    assert!(!revoke(&store, "a", &id).await);
    let next = granted(&store, &claim("a", 2).with_weight(2)).await;
    match timeout(BOUND, stalled).await.expect("it is notified") {
        // The grant's message arrived before the revocation's.
        Ok(permit) => until_notified(&permit).await,
        Err(error) => assert!(matches!(error, AcquireError::Revoked), "{error:?}"),
    }
    assert!(!next.is_lost());
    assert!(next.release().await);
}

async fn a_claim_that_is_granted_while_its_task_does_not_run_may_be_dropped(store: Store) {
    let nothing = |usage: &super::Usage| usage.units == 0 && usage.held.is_empty();
    for is_revoked in [false, true] {
        let (stalled, id) = stalled_and_granted(&store).await;
        assert!(!is_revoked || revoke(&store, "a", &id).await);
        drop(stalled);
        wait_for_usage(&store, "a", "nothing is held", nothing).await;
        assert!(!revoke(&store, "a", &id).await);
        // No more units than the limit are free.
        let all = granted(&store, &claim("a", 2).with_weight(2)).await;
        assert!(store.acquire(claim("a", 2)).await.is_err());
        drop(all);
        wait_for_usage(&store, "a", "nothing is held", nothing).await;
    }
}

async fn a_lock_is_listed_and_revoked_under_the_policy_that_its_docs_name(store: Store) {
    let (_, docs) = include_str!("../../../src/lock.rs")
        .split_once("under the policy `")
        .expect("the docs name it");
    let (name, _) = docs.split_once('`').expect("its end");
    let (policy, key) = (Policy::from(name), Key::from("a"));
    let lock = Lock::new(Arc::clone(&store), "a");
    let guard = lock.try_acquire().await.expect("it is free");
    let usage = store.usage(&policy, &key).await.expect("an answer");
    let revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
    assert!(revoked.expect("an answer"));
    timeout(BOUND, guard.lost()).await.expect("it is notified");
    assert!(lock.try_acquire().await.is_ok(), "the lock is free");
}
