//! Permits that are held when the server goes.

use crate::server::{LEASE, builder, granted, is_back, store};
use futures_util::future::join_all;
use std::{future::Future, time::Duration};
use testing::{redis::RedisServer, rig::Rig};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, Lock, Permit, Semaphore, redis::WhenUnavailable};

/// Well past the end of a lease.
const LONG: Duration = Duration::from_millis(2_500);

async fn is_told(lost: impl Future<Output = ()>) -> bool {
    timeout(Duration::from_millis(10), lost).await.is_ok()
}

async fn has_its_place(permit: &Permit, token: Option<u64>) {
    assert!(!is_told(permit.lost()).await && !permit.is_lost());
    assert!(!permit.is_degraded());
    assert!(permit.token() > token, "it was granted anew");
    assert!(permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_permit_is_kept_where_the_policy_admits() {
    for policy in [WhenUnavailable::Admit, WhenUnavailable::Share] {
        let mut server = RedisServer::start();
        let store = store(&server, policy).await;
        let permit = granted(&store, 5).await;
        let token = permit.token();
        server.kill();
        assert!(!permit.is_degraded(), "its lease has not ended");
        sleep(LONG).await;
        assert!(!is_told(permit.lost()).await && !permit.is_lost());
        assert!(permit.is_degraded());
        server.restart();
        is_back(&store).await;
        sleep(LEASE).await;
        has_its_place(&permit, token).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_permit_is_not_lost_by_a_server_that_comes_back_empty_within_its_lease() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Share).await;
    let permit = granted(&store, 5).await;
    let (watched, token) = (permit.clone(), permit.token());
    let lost = tokio::spawn(async move { watched.lost().await });
    server.kill();
    for _ in 0..4 {
        drop(store.acquire(Claim::new("b").with_limit(9)).await);
    }
    server.restart();
    is_back(&store).await;
    sleep(LEASE).await;
    assert!(!lost.is_finished(), "its holder was told that it is lost");
    has_its_place(&permit, token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_permit_is_lost_at_the_end_of_its_lease_where_the_policy_refuses() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Refuse).await;
    let permit = granted(&store, 5).await;
    server.kill();
    let told = timeout(LEASE + Duration::from_secs(2), permit.lost()).await;
    assert!(told.is_ok() && permit.is_lost() && !permit.is_degraded());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_permit_and_a_lock_are_lost_whatever_the_policy() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Admit).await;
    let strict = Claim::new("a").with_limit(1).with_strict(true);
    let strict = store.acquire(strict).await.expect("there is room");
    let lock = Lock::new(store, "item")
        .try_acquire()
        .await
        .expect("it is free");
    server.kill();
    let told = async {
        strict.lost().await;
        lock.lost().await;
    };
    let told = timeout(LEASE + Duration::from_secs(2), told).await;
    assert!(told.is_ok() && strict.is_lost() && lock.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_permit_is_kept_with_the_longest_timeout_too() {
    let lost = join_all((0..5).map(|_| is_lost_with_a_short_lease())).await;
    assert_eq!(lost, [false; 5], "whether each is lost");
}

async fn is_lost_with_a_short_lease() -> bool {
    let short = builder(WhenUnavailable::Admit)
        .lease(Duration::from_secs(3))
        .timeout(Duration::from_secs(1));
    let rig = Rig::new(short).await;
    let permit = granted(&rig.store, 5).await;
    // Longer than a refresh interval.
    sleep(Duration::from_millis(1_600)).await;
    assert!(!permit.is_lost());
    rig.proxy.black_hole();
    timeout(2 * LONG, permit.lost()).await.is_ok()
}
