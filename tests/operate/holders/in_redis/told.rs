//! How the holder learns of a revocation.

use super::{claim, first, granted, listens, revoke, started, stays_revoked, store, usage};
use crate::holders::BOUND;
use std::time::{Duration, Instant};
use testing::wait::eventually;
use tokio::time::timeout;
use tower_semaphore::{AcquireError, Permit, Semaphore};

/// No refresh is due for five minutes, so only a message can tell.
const LONG: Duration = Duration::from_secs(1_000);

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_in_another_process_is_told_by_a_message() {
    let (server, mut raw) = started().await;
    let [holder, operator] = [
        store(&server.url(), LONG).await,
        store(&server.url(), LONG).await,
    ];
    for weight in [1, 3] {
        let permit = granted(&holder, weight).await;
        let info = first(&operator).await;
        listens(&mut raw, &info.process.id).await;
        let start = Instant::now();
        assert!(revoke(&operator, &info.id).await);
        timeout(BOUND, permit.lost()).await.expect("it is told");
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
        stays_revoked(&permit, &mut raw).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_grew_is_lost_with_all_that_it_gained() {
    let (server, mut raw) = started().await;
    let [holder, operator] = [
        store(&server.url(), LONG).await,
        store(&server.url(), LONG).await,
    ];
    let permit = granted(&holder, 2).await;
    for weight in [4, 3, 8] {
        permit.resize(weight).await.expect("there is room");
    }
    let info = first(&operator).await;
    assert_eq!(info.weight, 8);
    listens(&mut raw, &info.process.id).await;
    assert!(revoke(&operator, &info.id).await);
    assert_eq!(usage(&operator).await.units, 0);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_in_a_third_process_is_granted_by_the_revocation_itself() {
    let (server, mut raw) = started().await;
    let url = server.url();
    let [holder, next, operator] = [LONG; 3].map(|lease| store(&url, lease));
    let (holder, next, operator) = (holder.await, next.await, operator.await);
    let permit = granted(&holder, 9).await;
    let waits = claim(9).with_wait(LONG);
    let waiter = tokio::spawn(next.acquire(waits));
    eventually("it waits", BOUND, async || {
        usage(&operator).await.waiting.len() == 1
    })
    .await;
    let waiting = usage(&operator).await.waiting.remove(0);
    listens(&mut raw, &waiting.process.id).await;
    let info = first(&operator).await;
    listens(&mut raw, &info.process.id).await;
    assert!(revoke(&operator, &info.id).await);
    let granted: Permit = timeout(BOUND, waiter)
        .await
        .expect("it is told")
        .expect("no panic")
        .expect("a permit");
    assert_eq!(first(&operator).await.id, waiting.id);
    eventually("the first is lost", BOUND, async || permit.is_lost()).await;
    assert!(granted.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_in_another_process_is_told_by_a_message() {
    let (server, mut raw) = started().await;
    let [holder, operator] = [
        store(&server.url(), LONG).await,
        store(&server.url(), LONG).await,
    ];
    let permit = granted(&holder, 9).await;
    let waiter = tokio::spawn(holder.acquire(claim(1).with_wait(LONG)));
    eventually("it waits", BOUND, async || {
        usage(&operator).await.waiting.len() == 1
    })
    .await;
    let waiting = usage(&operator).await.waiting.remove(0);
    listens(&mut raw, &waiting.process.id).await;
    assert!(revoke(&operator, &waiting.id).await);
    let answer = timeout(BOUND, waiter)
        .await
        .expect("an answer")
        .expect("no panic");
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
    assert!(usage(&operator).await.waiting.is_empty());
    assert!(!permit.is_lost());
}
