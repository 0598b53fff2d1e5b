//! Claims that stand in a queue when the server goes.

use crate::server::{
    BOUND, LEASE, all, builder, claim, granted, is_back, is_refused, know_each_other, opens, store,
};
use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{task::JoinHandle, time::sleep};
use tower_semaphore::{AcquireError, Permit, RedisSemaphore, Semaphore, redis::WhenUnavailable};

const QUEUE: &str = "semaphore:{concurrency:a}:queue";
/// Nothing here waits for so long.
const WAIT: Duration = Duration::from_secs(60);

type Waiter = JoinHandle<Result<Permit, AcquireError>>;

async fn queue(
    store: &RedisSemaphore,
    server: &RedisServer,
    limit: u32,
    count: usize,
) -> Vec<Waiter> {
    let waiting = (0..count).map(|_| tokio::spawn(store.acquire(claim(limit).with_wait(WAIT))));
    let waiting = waiting.collect();
    let mut raw = Raw::connect(server.port()).await;
    eventually("all wait", BOUND, async || raw.zcard(QUEUE).await == count).await;
    waiting
}

async fn decided(waiters: Vec<Waiter>) -> Vec<Result<Permit, AcquireError>> {
    let start = Instant::now();
    let mut answers = Vec::new();
    for waiter in waiters {
        answers.push(waiter.await.expect("it does not panic"));
    }
    assert!(
        start.elapsed() < WAIT / 4,
        "they have waited on: {:?}",
        start.elapsed()
    );
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_admitted_when_the_breaker_opens_on_a_silent_server() {
    let server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Admit).await;
    let _held = granted(&store, 1).await;
    let waiters = queue(&store, &server, 1, 10).await;
    server.stop();
    let answers = decided(waiters).await;
    assert!(
        answers
            .iter()
            .flatten()
            .filter(|permit| permit.is_degraded())
            .count()
            == 10
    );
    drop(answers);
    server.cont();
    is_back(&store).await;
    let mut raw = Raw::connect(server.port()).await;
    eventually("they have left the queue", BOUND, async || {
        raw.zcard(QUEUE).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_would_wait_is_decided_at_once_while_the_breaker_is_open() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::ShareOf(0.5)).await;
    server.kill();
    let held = [
        crate::server::degraded(&store, 4).await,
        crate::server::degraded(&store, 4).await,
    ];
    eventually("the breaker is open", BOUND, async || {
        let start = Instant::now();
        is_refused(store.acquire(claim(4).with_wait(WAIT)).await);
        start.elapsed() < LEASE / 4
    })
    .await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_outlast_a_moment_without_replicas() {
    for policy in [WhenUnavailable::Refuse, WhenUnavailable::Admit] {
        let server = RedisServer::start();
        let store = store(&server, policy).await;
        let held = granted(&store, 1).await;
        let waiters = queue(&store, &server, 1, 20).await;
        let mut raw = Raw::connect(server.port()).await;
        let mut needs = async |replicas: &str| {
            let set = ["CONFIG", "SET", "min-replicas-to-write", replicas];
            assert_eq!(raw.cmd(&set).await.error(), None);
        };
        needs("3").await;
        sleep(Duration::from_millis(100)).await;
        needs("0").await;
        drop(held);
        // Each passes its permit on as soon as it has one.
        let turns = waiters.into_iter().map(async |waiter| {
            let permit = waiter.await.expect("no panic").expect("its turn comes");
            assert!(!permit.is_degraded(), "{policy:?}");
        });
        join_all(turns).await;
    }
}

/// They are held to the share until all is well again, and that is soon.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_until_all_is_well_again_are_no_failures_of_the_server() {
    const LIMIT: u32 = 8;
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..2 {
        // Hardly anything is refreshed.
        let slow = builder(WhenUnavailable::Share).lease(Duration::from_secs(12));
        stores.push(slow.connect(server.url()).await.expect("a server"));
    }
    know_each_other(&server, 2).await;
    let store = stores[0].clone();
    server.stop();
    opens(&store).await;
    let mut share = all(&store, LIMIT).await;
    assert_eq!(share.len() as u32, LIMIT / 2);
    server.cont();
    eventually("they have their places", BOUND, async || {
        !share.iter().any(Permit::is_degraded)
    })
    .await;
    let wait = || store.acquire(claim(LIMIT).with_wait(Duration::from_millis(100)));
    let waiter = tokio::spawn(wait());
    sleep(Duration::from_millis(250)).await;
    share.pop();
    let answer = waiter.await.expect("no panic");
    assert!(
        !answer.is_ok_and(|permit| permit.is_degraded()),
        "the server answers"
    );
    share.push(wait().await.expect("there is a place"));
    // One after the other, so that no release shows that the server works when the next one is decided.
    let start = Instant::now();
    let mut granted = wait().await;
    while granted.is_err() && start.elapsed() < Duration::from_secs(10) {
        granted = wait().await;
    }
    assert!(
        granted.is_ok_and(|permit| !permit.is_degraded()),
        "it settles"
    );
}
