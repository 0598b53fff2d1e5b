//! One node of several does not answer, or has another time.

use crate::{
    routes::Nodes,
    support::{clock::SteppedClock, machine::alone, redis::RedisServer},
};
use futures_util::future::join_all;
use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(3);

async fn store(nodes: &Nodes) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    let store = builder.build_on(nodes.clone());
    store.expect("the settings are right")
}

fn key(number: usize, every: usize) -> String {
    match number % every {
        0 => format!("nodeb{number}"),
        _ => format!("first{number}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_fails_no_claim_of_another_node() {
    let (first, other) = (RedisServer::start(), RedisServer::start());
    let nodes = Nodes::connect(&first, &other).await;
    let store = store(&nodes).await;
    let warm = store.acquire(Claim::new("first").with_limit(1)).await;
    drop(warm.expect("there is room"));
    nodes.dead.store(true, Ordering::Relaxed);
    let claims = (1..=96).map(|number| {
        let claim = store.acquire(Claim::new(key(number, 32)).with_limit(1));
        async move { (number, claim.await) }
    });
    let failed = join_all(claims)
        .await
        .into_iter()
        .filter(|(number, granted)| number % 32 != 0 && granted.is_err());
    assert_eq!(failed.count(), 0, "claims of 93 on the node that lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_loses_no_permit_of_another_node() {
    let (first, other) = (RedisServer::start(), RedisServer::start());
    let nodes = Nodes::connect(&first, &other).await;
    let store = store(&nodes).await;
    let mut permits = Vec::new();
    for number in 1..=128 {
        let claim = Claim::new(key(number, 8)).with_limit(1);
        permits.push((number, store.acquire(claim).await.expect("there is room")));
    }
    nodes.dead.store(true, Ordering::Relaxed);
    // Without a refresh they end by then.
    sleep(LEASE * 3 / 2).await;
    let lost = permits
        .iter()
        .filter(|(number, permit)| number % 8 != 0 && permit.is_lost());
    assert_eq!(lost.count(), 0, "permits of 112 on the node that lives");
}

/// What fails of 2,000 claims on two nodes whose clocks differ by so many seconds.
async fn failures(seconds: i64) -> BTreeMap<String, usize> {
    let clock = SteppedClock::compile();
    clock.set(seconds);
    let other = clock.server();
    let first = RedisServer::start();
    let nodes = Nodes::connect(&first, &other).await;
    let store = store(&nodes).await;
    let tasks = (0..40).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut errors = Vec::new();
            for round in 0..50 {
                let claim = Claim::new(format!("{}-{round}", key(number, 2))).with_limit(1);
                errors.extend(store.acquire(claim).await.err());
            }
            errors
        })
    });
    let mut failures = BTreeMap::new();
    for task in join_all(tasks).await {
        for error in task.expect("no panic") {
            *failures.entry(format!("{error:?}")).or_default() += 1;
        }
    }
    failures
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_clocks_differ_by_seconds_grant() {
    let _alone = alone().await;
    let failures = failures(5).await;
    assert!(failures.is_empty(), "of 2,000: {failures:?}");
}
