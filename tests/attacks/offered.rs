//! Heavy claims at a rate, and two nodes of which one is dead.

use crate::routes::Nodes;
use futures_util::future::join_all;
use std::{sync::atomic::Ordering, time::Duration};
use testing::redis::RedisServer;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// How often claims are offered at most: a busy machine fails some, but not each time.
pub(crate) const TRIES: usize = 3;
const TIME: Duration = Duration::from_secs(3);

pub(crate) type Offered = JoinHandle<Vec<JoinHandle<Result<Permit, AcquireError>>>>;

/// Offers claims of a weight at a rate per second.
pub(crate) fn offer(
    store: &RedisSemaphore,
    keys: impl Iterator<Item = String> + Send + 'static,
    weight: u32,
    rate: u32,
) -> Offered {
    let store = store.clone();
    tokio::spawn(async move {
        let start = Instant::now();
        let mut answers = Vec::new();
        for (number, key) in (0..rate * TIME.as_secs() as u32).zip(keys) {
            sleep_until(start + Duration::from_secs(1) * number / rate).await;
            let claim = Claim::new(key);
            let claim = claim.with_limit(weight).with_weight(weight);
            answers.push(tokio::spawn(store.acquire(claim)));
        }
        answers
    })
}

/// How many claims fail, of how many.
pub(crate) async fn failures(offered: Offered) -> (usize, usize) {
    let answers = join_all(offered.await.expect("no panic")).await;
    let count = answers.len();
    let errors = answers
        .into_iter()
        .filter(|answer| !matches!(answer, Ok(Ok(_))));
    (errors.count(), count)
}

/// A store on two nodes, of which one has died after the first claim. The servers live as long as
/// the result.
pub(crate) async fn one_of_two_is_dead() -> ([RedisServer; 2], RedisSemaphore) {
    let servers = [RedisServer::start(), RedisServer::start()];
    let nodes = Nodes::connect(&servers[0], &servers[1]).await;
    // A busy machine is no failure of the store.
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(1));
    let store = builder
        .with_connection(nodes.clone())
        .expect("right settings");
    let warm = store.acquire(Claim::new("warm").with_limit(1)).await;
    drop(warm.expect("there is room"));
    nodes.dead.store(true, Ordering::Relaxed);
    (servers, store)
}
