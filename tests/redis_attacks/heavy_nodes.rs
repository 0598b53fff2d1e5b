//! Heavy claims on the living nodes of a supplied connection, while one node is dead.

use crate::{
    routes::Nodes,
    support::{machine::alone, redis::RedisServer},
};
use futures_util::future::join_all;
use std::{sync::atomic::Ordering, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const TIME: Duration = Duration::from_secs(3);
/// How often the claims are offered at most: a busy machine fails some, but not each time.
const TRIES: usize = 3;

type Answer = JoinHandle<Result<Permit, AcquireError>>;

/// Offers claims of a weight at a rate per second, each for a key of its own.
fn offer(store: &RedisSemaphore, key: String, weight: u32, rate: u32) -> JoinHandle<Vec<Answer>> {
    let store = store.clone();
    tokio::spawn(async move {
        let start = Instant::now();
        let mut answers = Vec::new();
        for number in 0..rate * TIME.as_secs() as u32 {
            sleep_until(start + Duration::from_secs(1) * number / rate).await;
            let claim = Claim::new(format!("{key}-{number}"));
            let claim = claim.with_limit(weight).with_weight(weight);
            answers.push(tokio::spawn(store.acquire(claim)));
        }
        answers
    })
}

/// Claims at a rate for the living node are granted, but for 10 %, beside eight times as many for
/// the dead one.
async fn are_granted(weight: u32, rate: u32) {
    let _alone = alone().await;
    let servers = [RedisServer::start(), RedisServer::start()];
    let nodes = Nodes::connect(&servers[0], &servers[1]).await;
    // A busy machine is no failure of the store.
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(1));
    let store = builder.build_on(nodes.clone()).expect("right settings");
    let warm = store.acquire(Claim::new("first").with_limit(1)).await;
    drop(warm.expect("there is room"));
    nodes.dead.store(true, Ordering::Relaxed);
    let mut tries = Vec::new();
    for attempt in 0..TRIES {
        let living = offer(&store, format!("first-{attempt}"), weight, rate);
        let dead = offer(&store, format!("nodeb-{attempt}"), weight, rate * 8);
        let answers = join_all(living.await.expect("no panic")).await;
        let failed: Vec<_> = answers
            .iter()
            .filter(|answer| !matches!(answer, Ok(Ok(_))))
            .collect();
        if failed.len() * 10 <= answers.len() {
            return;
        }
        tries.push(format!("{} of {}: {failed:?}", failed.len(), answers.len()));
        dead.await.expect("no panic");
    }
    panic!("failed: {tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_claims_for_a_dead_node_fail_no_heavy_claim_of_another_node() {
    are_granted(1_000, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_hundred_claims_of_weight_100_a_second_for_a_dead_node_fail_none_of_another_node() {
    are_granted(100, 50).await;
}
