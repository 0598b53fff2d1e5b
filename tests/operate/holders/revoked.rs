//! What becomes of a permit that is revoked, and of a claim that waits.

use super::{BOUND, Store, claim, facts, granted, ids, revoke, shown, usage, waiting};
use std::{sync::Arc, time::Duration};
use testing::wait::eventually;
use tokio::time::timeout;
use tower_semaphore::{AcquireError, Key, Lock, Policy, Semaphore};

facts! {
    a_revoked_permit_is_lost_and_its_units_are_free
    a_revoked_permit_goes_to_the_next_in_the_queue
    a_permit_is_revoked_once
    a_revocation_that_is_never_polled_revokes_nothing
    a_revoked_permit_cannot_change_its_weight_and_was_not_held
    all_units_of_a_permit_that_grew_and_shrank_are_free
    a_claim_that_waits_is_revoked
    a_revoked_claim_that_is_dropped_releases_nothing
    a_revoked_head_lets_the_next_in
    a_permit_that_waited_is_revoked_by_the_id_of_its_wait
    one_limit_of_several_is_revoked_and_the_whole_permit_is_lost
    a_lock_is_listed_and_revoked_under_the_policy_that_its_docs_name
}

async fn a_revoked_permit_is_lost_and_its_units_are_free(store: Store) {
    let heavy = claim("a", 5).with_weight(5);
    let permit = granted(&store, &heavy).await;
    let clone = permit.clone();
    let lost = tokio::spawn(async move { clone.lost().await });
    let held = usage(&store, "a").await;
    assert!(revoke(&store, "a", &held.held[0].id).await);
    let free = usage(&store, "a").await;
    assert_eq!((free.units, free.held.len()), (0, 0));
    let second = granted(&store, &heavy).await;
    timeout(BOUND, lost)
        .await
        .expect("it is told")
        .expect("no panic");
    assert!(permit.is_lost() && !second.is_lost());
    drop(permit);
    assert!(
        second.release().await,
        "the drop of a revoked permit touches no other"
    );
}

async fn a_revoked_permit_goes_to_the_next_in_the_queue(store: Store) {
    let _permit = granted(&store, &claim("a", 1)).await;
    let first = tokio::spawn(store.acquire(waiting("a", 1).with_label("first")));
    shown(&store, "a", "it waits", |usage| usage.waiting.len() == 1).await;
    let second = tokio::spawn(store.acquire(waiting("a", 1).with_label("second")));
    let usage = shown(&store, "a", "both wait", |usage| usage.waiting.len() == 2).await;
    assert!(revoke(&store, "a", &usage.held[0].id).await);
    let next = timeout(BOUND, first).await.expect("it is granted");
    let next = next.expect("no panic").expect("a permit");
    assert!(!next.is_lost());
    let usage = shown(&store, "a", "it holds", |usage| usage.held.len() == 1).await;
    assert_eq!(usage.held[0].label.as_deref(), Some("first"));
    assert_eq!(usage.waiting[0].label.as_deref(), Some("second"));
    second.abort();
}

async fn a_permit_is_revoked_once(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let id = usage(&store, "a").await.held[0].id.clone();
    let key = "a".into();
    let policy = &Policy::DEFAULT;
    let all = (0..10).map(|_| store.revoke(policy, &key, &id));
    let answers = futures_util::future::join_all(all).await;
    let revoked = answers
        .into_iter()
        .filter(|answer| matches!(answer, Ok(true)));
    assert_eq!(revoked.count(), 1);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    assert!(!revoke(&store, "a", &id).await);
}

async fn a_revocation_that_is_never_polled_revokes_nothing(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let id = usage(&store, "a").await.held[0].id.clone();
    drop(store.revoke(&Policy::DEFAULT, &"a".into(), &id));
    assert!(!permit.is_lost());
    assert!(permit.release().await, "it was still held");
}

async fn a_revoked_permit_cannot_change_its_weight_and_was_not_held(store: Store) {
    let permit = granted(&store, &claim("a", 5).with_weight(2)).await;
    let id = usage(&store, "a").await.held[0].id.clone();
    assert!(revoke(&store, "a", &id).await);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    // A store that was told by a refresh learns soon after that it is for ever.
    eventually("it is for ever", BOUND, async || permit.weight() == 0).await;
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
        let id = usage(&store, "a").await.held[0].id.clone();
        assert!(revoke(&store, "a", &id).await, "{weights:?}");
        assert_eq!(usage(&store, "a").await.units, 0, "{weights:?}");
        timeout(BOUND, permit.lost()).await.expect("it is told");
        let all = granted(&store, &claim("a", 9).with_weight(9)).await;
        drop(permit);
        assert!(all.release().await);
    }
}

async fn a_claim_that_waits_is_revoked(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let waiter = tokio::spawn(store.acquire(waiting("a", 1)));
    let usage = shown(&store, "a", "it waits", |usage| usage.waiting.len() == 1).await;
    let id = &usage.waiting[0].id;
    assert!(revoke(&store, "a", id).await);
    assert!(!revoke(&store, "a", id).await);
    let answer = timeout(BOUND, waiter)
        .await
        .expect("an answer")
        .expect("no panic");
    let error = answer.expect_err("it was revoked");
    assert!(matches!(error, AcquireError::Revoked), "{error:?}");
    assert!(error.is_refusal());
    let usage = super::usage(&store, "a").await;
    assert_eq!((usage.units, usage.waiting.len()), (1, 0));
    assert!(!permit.is_lost());
    // Nothing of it is left, and nothing was released that it never had.
    assert!(permit.release().await);
    let _all = granted(&store, &claim("a", 1)).await;
    assert!(store.acquire(claim("a", 1)).await.is_err());
}

async fn a_revoked_claim_that_is_dropped_releases_nothing(store: Store) {
    let _permit = granted(&store, &claim("a", 2).with_weight(2)).await;
    let mut waiter = store.acquire(waiting("a", 2).with_weight(2));
    let mut id = None;
    let slot = &mut id;
    eventually("it waits", BOUND, async || {
        tokio::select! {
            biased;
            _ = &mut waiter => panic!("there is no room"),
            usage = usage(&store, "a") => *slot = usage.waiting.first().map(|info| info.id.clone()),
        }
        slot.is_some()
    })
    .await;
    assert!(revoke(&store, "a", &id.expect("it waits")).await);
    drop(waiter);
    assert_eq!(usage(&store, "a").await.units, 2);
    assert!(store.acquire(claim("a", 2)).await.is_err());
}

async fn a_revoked_head_lets_the_next_in(store: Store) {
    let _permit = granted(&store, &claim("a", 2)).await;
    let heavy = tokio::spawn(store.acquire(waiting("a", 2).with_weight(2)));
    shown(&store, "a", "it waits", |usage| usage.waiting.len() == 1).await;
    let light = tokio::spawn(store.acquire(waiting("a", 2)));
    let usage = shown(&store, "a", "both wait", |usage| usage.waiting.len() == 2).await;
    assert!(revoke(&store, "a", &usage.waiting[0].id).await);
    let answer = timeout(BOUND, heavy)
        .await
        .expect("an answer")
        .expect("no panic");
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
    let light = timeout(BOUND, light)
        .await
        .expect("an answer")
        .expect("no panic");
    assert!(light.is_ok());
}

async fn a_permit_that_waited_is_revoked_by_the_id_of_its_wait(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let waiter = tokio::spawn(store.acquire(waiting("a", 1)));
    let usage = shown(&store, "a", "it waits", |usage| usage.waiting.len() == 1).await;
    drop(permit);
    let next = waiter.await.expect("no panic").expect("a permit");
    let id = &usage.waiting[0].id;
    shown(&store, "a", "it holds", |usage| ids(&usage.held) == [id]).await;
    assert!(revoke(&store, "a", id).await);
    timeout(BOUND, next.lost()).await.expect("it is told");
}

async fn one_limit_of_several_is_revoked_and_the_whole_permit_is_lost(store: Store) {
    let fleet = claim("all", 1).with_policy("fleet");
    let both = || [claim("a", 1), fleet.clone()];
    let permit = store
        .acquire_all(both().into())
        .await
        .expect("there is room");
    let id = usage(&store, "a").await.held[0].id.clone();
    assert!(revoke(&store, "a", &id).await);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    // The wider limit is freed by its holder at the latest.
    assert_eq!(usage(&store, "a").await.units, 0);
    drop(permit);
    let waits = fleet.with_wait(Duration::from_secs(60));
    let fleet = timeout(BOUND, store.acquire(waits))
        .await
        .expect("an answer");
    assert!(fleet.is_ok());
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
    timeout(BOUND, guard.lost()).await.expect("it is told");
    assert!(lock.try_acquire().await.is_ok(), "the lock is free");
}
