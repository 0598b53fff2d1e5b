//! Claims on the living nodes of a supplied connection, while one node is dead.

use crate::{
    offered::{TRIES, one_of_two_is_dead},
    routes::{Nodes, keys},
};
use std::{
    collections::BTreeMap,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use testing::{machine::alone, redis::RedisServer};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const TIME: Duration = Duration::from_secs(2);
/// Claims per second. One node gets every 16th.
const RATE: f64 = 600.0;

/// Offers claims at a rate. Returns how many are for the first node, and which errors they get.
async fn failures(store: &RedisSemaphore, attempt: usize) -> (usize, BTreeMap<String, usize>) {
    let start = Instant::now();
    let mut tasks = Vec::new();
    let mut number = 0_u32;
    let mut keys = [false, true].map(|is_on_other| keys(is_on_other, format!("try-{attempt}")));
    while start.elapsed() < TIME {
        while number < (start.elapsed().as_secs_f64() * RATE) as u32 {
            number += 1;
            let is_on_other = number.is_multiple_of(16);
            let key = keys[usize::from(is_on_other)].next();
            let claim = Claim::new(key.expect("there are many")).with_limit(1);
            let acquire = store.acquire(claim);
            tasks.push(tokio::spawn(
                async move { (is_on_other, acquire.await.err()) },
            ));
        }
        sleep(Duration::from_millis(1)).await;
    }
    let (mut count, mut failures) = (0, BTreeMap::new());
    for task in tasks {
        let (is_on_other, error) = task.await.expect("no panic");
        count += usize::from(!is_on_other);
        if let (Some(error), false) = (error, is_on_other) {
            *failures.entry(error.to_string()).or_default() += 1;
        }
    }
    (count, failures)
}

/// Of the claims on the living node half failed when batches waited for the dead one. A busy machine
/// fails fewer.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_fails_no_claim_of_another_node_under_load() {
    let _alone = alone().await;
    let (_servers, store) = one_of_two_is_dead().await;
    let mut tries = Vec::new();
    for attempt in 0..TRIES {
        let (count, failures) = failures(&store, attempt).await;
        if failures.values().sum::<usize>() * 10 <= count {
            return;
        }
        tries.push((count, failures));
    }
    panic!("claims on the living node, and their errors: {tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_starts_while_one_node_is_dead_grants_on_the_others() {
    let _alone = alone().await;
    let servers = [RedisServer::start(), RedisServer::start()];
    // A key of the store itself is on the dead one.
    let nodes = Nodes::connect(&servers[0], &servers[1]).await;
    nodes.dead.store(true, Ordering::Relaxed);
    // The first claim waits for the clock for one timeout, and has one left: on a busy machine its
    // tries need a good part of that.
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let store = builder.with_connection(nodes).expect("right settings");
    for key in keys(false, "alive").take(10) {
        let answer = store.acquire(Claim::new(key.as_str()).with_limit(1)).await;
        assert!(answer.is_ok(), "claim for {key}: {answer:?}");
    }
}
