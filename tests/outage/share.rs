//! The share of a process: how many permits of a key it admits, and what counts.

use crate::server::{
    BOUND, admitted, builder, claim, degraded, is_refused, know_each_other, store,
};
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw};
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
