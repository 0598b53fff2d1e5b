//! Claims between the queue and their permit.

use super::{
    BOUND, Store, claim, distinct, every_store::memory, facts, granted, ids, revoke, shown, usage,
    waiting,
};
use futures_util::FutureExt;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::wait::eventually;
use tokio::{
    task::{JoinSet, yield_now},
    time::timeout,
};
use tower_semaphore::{Acquire, AcquireError, Semaphore};

facts! {
    a_claim_that_is_granted_while_its_task_does_not_run_is_shown_and_revoked
    a_claim_that_is_granted_while_its_task_does_not_run_may_be_dropped
    a_claim_that_waits_for_its_second_limit_is_revoked_at_its_first
}

/// A claim for all units that waits, and is polled no more; and its id.
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

async fn a_claim_that_is_granted_while_its_task_does_not_run_is_shown_and_revoked(store: Store) {
    let permit = granted(&store, &claim("a", 2).with_weight(2)).await;
    let (stalled, id) = stalled(&store).await;
    drop(permit);
    let usage = shown(&store, "a", "it holds", |usage| ids(&usage.held) == [&*id]).await;
    assert_eq!((usage.units, usage.held[0].weight), (2, 2));
    assert_eq!(usage.held[0].label.as_deref(), Some("stalled"));
    assert!(usage.waiting.is_empty());
    assert!(revoke(&store, "a", &id).await);
    assert!(!revoke(&store, "a", &id).await);
    let next = granted(&store, &claim("a", 2).with_weight(2)).await;
    match timeout(BOUND, stalled).await.expect("it is told") {
        // Its grant was heard before its revocation.
        Ok(permit) => timeout(BOUND, permit.lost()).await.expect("it is told"),
        Err(error) => assert!(matches!(error, AcquireError::Revoked), "{error:?}"),
    }
    assert!(!next.is_lost());
    assert!(next.release().await);
}

async fn a_claim_that_is_granted_while_its_task_does_not_run_may_be_dropped(store: Store) {
    for is_revoked in [false, true] {
        let permit = granted(&store, &claim("a", 2)).await;
        let (stalled, id) = stalled(&store).await;
        drop(permit);
        shown(&store, "a", "it holds", |usage| ids(&usage.held) == [&*id]).await;
        if is_revoked {
            assert!(revoke(&store, "a", &id).await);
        }
        drop(stalled);
        shown(&store, "a", "nothing is held", |usage| {
            usage.units == 0 && usage.held.is_empty()
        })
        .await;
        assert!(!revoke(&store, "a", &id).await);
        // No more than the limit is free.
        let _all = granted(&store, &claim("a", 2).with_weight(2)).await;
        assert!(store.acquire(claim("a", 2)).await.is_err());
        drop(_all);
        shown(&store, "a", "nothing is held", |usage| usage.units == 0).await;
    }
}

async fn a_claim_that_waits_for_its_second_limit_is_revoked_at_its_first(store: Store) {
    let wait = Duration::from_secs(60);
    let fleet = || claim("all", 1).with_policy("fleet").with_wait(wait);
    let holder = granted(&store, &fleet()).await;
    let both = [claim("a", 1).with_wait(wait), fleet()];
    let waiter = tokio::spawn(store.acquire_all(both.into()));
    let held = shown(&store, "a", "it holds the first", |usage| {
        usage.held.len() == 1
    })
    .await;
    assert!(revoke(&store, "a", &held.held[0].id).await);
    let answer = timeout(BOUND, waiter).await.expect("it is told");
    let error = answer.expect("no panic").expect_err("it was revoked");
    assert!(matches!(error, AcquireError::Revoked), "{error:?}");
    assert_eq!(usage(&store, "a").await.units, 0);
    eventually("it waits for nothing", BOUND, async || {
        let fleet = store.usage(&"fleet".into(), &"all".into()).await;
        fleet.expect("the store answers").waiting.is_empty()
    })
    .await;
    assert!(holder.release().await);
}

/// Claims that wait, are granted, revoked and dropped at every moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_revoked_between_the_queue_and_the_permit_is_freed_once() {
    const LIMIT: u32 = 2;
    let store = memory();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut workers = JoinSet::new();
    for _ in 0..8 {
        let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
        workers.spawn(async move {
            let mut ends = (0, 0, 0);
            while !is_over.load(SeqCst) {
                let waits = waiting("a", LIMIT).with_weight(1 + ends.0 % 2);
                match store.acquire(waits).await {
                    Ok(permit) if permit.is_lost() => ends.1 += 1,
                    Ok(_) => ends.0 += 1,
                    Err(error) => {
                        assert!(matches!(error, AcquireError::Revoked), "{error:?}");
                        ends.2 += 1;
                    }
                }
                yield_now().await;
            }
            ends
        });
    }
    let mut revoked = 0;
    while revoked < 500 {
        let usage = usage(&store, "a").await;
        assert!(usage.units <= LIMIT, "{usage:?}");
        let both = ids(&usage.held).into_iter().chain(ids(&usage.waiting));
        let both: Vec<_> = both.collect();
        assert_eq!(distinct(&both), both.len(), "{usage:?}");
        if let Some(id) = both.get(revoked % 10 % both.len().max(1)) {
            revoked += usize::from(revoke(&store, "a", id).await);
        }
        yield_now().await;
    }
    is_over.store(true, SeqCst);
    let ends = workers.join_all().await.into_iter();
    let (held, refused) = ends.fold((0, 0), |sum, ends| (sum.0 + ends.0, sum.1 + ends.2));
    assert!(held > 0 && refused > 0, "{held} {refused}");
    let all = granted(&store, &claim("a", LIMIT).with_weight(LIMIT)).await;
    assert_eq!(usage(&store, "a").await.units, LIMIT);
    assert!(all.release().await);
    assert_eq!(usage(&store, "a").await.held, []);
}
