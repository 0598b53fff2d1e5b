//! One node of several does not answer, or has another time.

use crate::routes::{Nodes, keys};
use futures_util::future::join_all;
use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};
use testing::{clock::SteppedClock, machine::alone, redis::RedisServer};
use tokio::time::sleep;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(3);

async fn store(nodes: &Nodes) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    let store = builder.with_connection(nodes.clone());
    store.expect("the settings are right")
}

fn claim(key: String) -> Claim {
    Claim::new(key).with_limit(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_fails_no_claim_of_another_node() {
    let (first, other) = (RedisServer::start(), RedisServer::start());
    let nodes = Nodes::connect(&first, &other).await;
    let store = store(&nodes).await;
    let warm = store.acquire(Claim::new("warm").with_limit(1)).await;
    drop(warm.expect("there is room"));
    nodes.dead.store(true, Ordering::Relaxed);
    let dead = keys(true, "dead")
        .take(3)
        .map(|key| store.acquire(claim(key)));
    let living = keys(false, "alive").take(93);
    let living = living.map(|key| store.acquire(claim(key)));
    let (_, answers) = tokio::join!(join_all(dead), join_all(living));
    let failed = answers.into_iter().filter_map(Result::err);
    assert_eq!(failed.count(), 0, "claims of 93 on the node that lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_loses_no_permit_of_another_node() {
    let (first, other) = (RedisServer::start(), RedisServer::start());
    let nodes = Nodes::connect(&first, &other).await;
    let store = store(&nodes).await;
    let (mut living, mut dying) = (Vec::new(), Vec::new());
    for key in keys(false, "alive").take(112) {
        living.push(store.acquire(claim(key)).await.expect("there is room"));
    }
    for key in keys(true, "dead").take(16) {
        dying.push(store.acquire(claim(key)).await.expect("there is room"));
    }
    nodes.dead.store(true, Ordering::Relaxed);
    // Without a refresh they end by then.
    sleep(LEASE * 3 / 2).await;
    let lost = living.iter().filter(|permit| permit.is_lost());
    assert_eq!(lost.count(), 0, "permits of 112 on the node that lives");
    assert!(dying.iter().all(Permit::is_lost));
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
            for key in keys(number % 2 == 0, format!("task-{number}")).take(50) {
                errors.extend(store.acquire(claim(key)).await.err());
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
