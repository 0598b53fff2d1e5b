//! Processes that share a Redis, and are killed.

use super::{BOUND, server::members};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::{
    fleet::Process,
    redis::RedisServer,
    resp::Raw,
    stores::{self, Store},
    wait::eventually,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(1_500);
/// A lease, and what a busy machine takes.
const FREE: Duration = Duration::from_secs(6);

const LIMITS: [&str; 3] = ["account ann 1", "route export 1", "fleet all 1"];

fn claims() -> [Claim; 3] {
    testing::levels::claims("ann", [1, 1, 1])
}

/// A store, and a process that is about to be killed.
async fn in_one_script(server: &RedisServer) -> (Store, Process) {
    let store = RedisSemaphore::builder().lease(LEASE).connect(server.url());
    let store = Arc::new(store.await.expect("it connects"));
    (store, Process::start(&server.url(), LEASE))
}

/// The same, each on a supplied connection.
async fn level_by_level(server: &RedisServer) -> (Store, Process) {
    let store = stores::supplied(&server.url()).await;
    (store, Process::supplied(&server.url(), LEASE))
}

async fn until_waiting(server: &RedisServer, expected: [usize; 3]) {
    let mut raw = Raw::connect(server.port()).await;
    let waits = async || members(&mut raw, "queue").await == expected;
    eventually("it waits", BOUND, waits).await;
}

/// The units of a killed process go to a claim that waits for all of them.
async fn a_killed_process_leaves(server: &RedisServer, (store, mut process): (Store, Process)) {
    assert!(process.acquire_all("p", &LIMITS));
    let waiting = claims().map(|claim| claim.with_wait(BOUND));
    let waiter = tokio::spawn(store.acquire_all(waiting.into()));
    until_waiting(server, [1, 0, 0]).await;
    assert!(!waiter.is_finished());
    process.kill();
    let killed = Instant::now();
    let permit = waiter.await.expect("no panic").expect("it is granted");
    assert!(killed.elapsed() < FREE, "after {:?}", killed.elapsed());
    assert_eq!(permit.levels().len(), 3);
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(members(&mut raw, "held").await, [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_units_of_a_killed_process_come_back_at_every_limit_with_its_leases() {
    let server = RedisServer::start();
    a_killed_process_leaves(&server, in_one_script(&server).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_units_of_a_killed_process_come_back_level_by_level_too() {
    let server = RedisServer::start();
    a_killed_process_leaves(&server, level_by_level(&server).await).await;
}
