//! The share of a process: how many permits of a key it admits, and what counts.

use crate::server::{
    BOUND, admitted, admitted_soon, builder, claim, degraded, granted, is_refused, know_each_other,
    store,
};
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Claim, Lock, RedisSemaphore, Semaphore, redis::WhenUnavailable};

use WhenUnavailable::{Admit, Share, ShareOf};

/// Stores that know of each other.
pub(crate) async fn stores(server: &RedisServer, count: usize) -> Vec<RedisSemaphore> {
    let mut stores = Vec::new();
    for _ in 0..count {
        stores.push(store(server, Share).await);
    }
    know_each_other(server, count).await;
    stores
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_is_the_limit_divided_by_the_processes_that_are_alive() {
    let mut server = RedisServer::start();
    let stores = stores(&server, 3).await;
    server.kill();
    for store in &stores {
        assert_eq!(admitted(store, 10).await.len(), 4);
        let other = Claim::new("b").with_limit(1);
        assert!(
            store
                .acquire(other)
                .await
                .is_ok_and(|permit| permit.is_degraded())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_has_just_started_counts_whatever_the_lease() {
    let mut server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let long = builder(Share).lease(Duration::from_secs(3_600));
        stores.push(long.connect(server.url()).await.expect("a server"));
    }
    know_each_other(&server, 2).await;
    server.kill();
    for store in &stores {
        assert_eq!(admitted(store, 10).await.len(), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_counts_whatever_its_own_policy() {
    let mut server = RedisServer::start();
    let shares = store(&server, Share).await;
    let others = (
        store(&server, Admit).await,
        store(&server, WhenUnavailable::Refuse).await,
    );
    know_each_other(&server, 3).await;
    server.kill();
    assert_eq!(admitted(&shares, 9).await.len(), 3);
    drop(others);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_has_ended_does_not_count_any_more() {
    let server = RedisServer::start();
    let mut stores = stores(&server, 3).await;
    stores.pop();
    know_each_other(&server, 2).await;
    stores.remove(0).shutdown(BOUND).await;
    know_each_other(&server, 1).await;
    let mut raw = Raw::connect(server.port()).await;
    let ttl = raw.cmd(&["PTTL", "semaphore:processes"]).await.int();
    assert!(ttl > 0, "the set does not expire: {ttl}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_share_needs_no_count() {
    let mut server = RedisServer::start();
    let store = store(&server, ShareOf(0.25)).await;
    server.kill();
    assert_eq!(admitted(&store, 10).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fraction_beyond_the_limit_is_a_mistake_in_the_settings() {
    let error = builder(ShareOf(1.5)).connect("redis://127.0.0.1:1/").await;
    let error = error.expect_err("it cannot work").to_string();
    assert!(error.contains("when_unavailable"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_from_before_count_against_the_share() {
    let mut server = RedisServer::start();
    let stores = stores(&server, 2).await;
    let mut before = Vec::new();
    for _ in 0..3 {
        before.push(granted(&stores[0], 4).await);
    }
    server.kill();
    is_refused(stores[0].acquire(claim(4)).await);
    assert_eq!(admitted(&stores[1], 4).await.len(), 2);
    before.truncate(1);
    let one = degraded(&stores[0], 4).await;
    is_refused(stores[0].acquire(claim(4)).await);
    drop(one);
    assert_eq!(admitted(&stores[0], 4).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_a_claim_got_just_before_count_too() {
    let mut server = RedisServer::start();
    let store = store(&server, ShareOf(0.5)).await;
    for _ in 0..20 {
        let before = granted(&store, 4).await;
        server.kill();
        // Not adopted by the keeper yet.
        assert_eq!(admitted(&store, 4).await.len(), 1);
        server.restart();
        eventually("it is well again", BOUND, async || {
            drop(store.acquire(claim(4)).await);
            let two = [store.acquire(claim(4)).await, store.acquire(claim(4)).await];
            two.iter()
                .flatten()
                .filter(|permit| !permit.is_degraded())
                .count()
                == 2
        })
        .await;
        drop(before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heavy_permit_takes_its_weight_of_the_share() {
    let mut server = RedisServer::start();
    let store = store(&server, ShareOf(0.5)).await;
    server.kill();
    let three = admitted_soon(&store, claim(10).with_weight(3)).await;
    is_refused(store.acquire(claim(10).with_weight(3)).await);
    assert_eq!(admitted(&store, 10).await.len(), 2);
    drop(three);
    assert_eq!(admitted(&store, 10).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_claims_gets_exactly_the_share() {
    let mut server = RedisServer::start();
    let store = store(&server, ShareOf(0.5)).await;
    server.kill();
    drop(degraded(&store, 10).await);
    let claims = (0..200).map(|_| tokio::spawn(store.acquire(claim(10))));
    let claims: Vec<_> = claims.collect();
    let mut permits = Vec::new();
    for claim in claims {
        permits.extend(claim.await.expect("it does not panic"));
    }
    assert_eq!(permits.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_server_has_gone_before_its_first_claim_admits_its_share() {
    let mut server = RedisServer::start();
    let connection = testing::stores::connection(&server.url()).await;
    server.kill();
    // Each time the first failure may come before the thread of the store runs, or after that.
    for _ in 0..100 {
        let store = builder(ShareOf(0.5)).with_connection(connection.clone());
        drop(degraded(&store.expect("it is valid"), 10).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_claim_and_a_lock_are_always_refused() {
    let mut server = RedisServer::start();
    let store = store(&server, Admit).await;
    server.kill();
    drop(degraded(&store, 5).await);
    is_refused(store.acquire(claim(5).with_strict(true)).await);
    let lock = Lock::new(store, "item");
    for _ in 0..5 {
        assert!(lock.try_acquire().await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_is_what_is_left_of_the_share() {
    let mut server = RedisServer::start();
    let store = store(&server, ShareOf(0.5)).await;
    server.kill();
    let one = degraded(&store, 10).await;
    let two = degraded(&store, 10).await;
    assert_eq!((one.limit(), one.remaining(), two.remaining()), (10, 4, 3));
}
