//! A store that several runtimes share: none of them carries the permits of another.

use super::common::{BOUND, SOON, claim, ended, live, permit, queued, store};
use std::time::{Duration, Instant};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(2);

/// A store that connected, and made its first acquire, in a runtime that has ended since the
/// permit of the second acquire was granted.
async fn orphaned(server: &RedisServer) -> (RedisSemaphore, Permit) {
    let first = Runtime::new().expect("a runtime starts");
    let url = server.url();
    let born = first.spawn(async move {
        let store = store(url, LEASE).await;
        assert!(permit(&store, 2).await.release().await);
        store
    });
    let store = born.await.expect("it did not panic");
    let permit = permit(&store, 2).await;
    first.shutdown_background();
    (store, permit)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_refreshed_after_the_runtime_of_the_first_acquire_has_ended() {
    let server = RedisServer::start();
    let (_store, permit) = orphaned(&server).await;
    let other = store(server.url(), LEASE).await;
    let mut raw = Raw::connect(server.port()).await;
    let start = Instant::now();
    while start.elapsed() < LEASE * 2 {
        let taken = other.acquire(claim(1)).await;
        assert!(taken.is_err(), "taken after {:?}", start.elapsed());
        assert_eq!(live(&mut raw).await, 1, "after {:?}", start.elapsed());
        tokio::time::sleep(LEASE / 20).await;
    }
    assert!(!permit.is_lost());
    assert!(ended("the release", permit.release()).await);
}

#[test]
fn a_release_that_is_queued_as_the_first_runtime_ends_arrives_long_before_the_lease_ends() {
    let lease = Duration::from_secs(60);
    let server = RedisServer::start();
    let first = current_thread();
    let (_store, permit) = first.block_on(async {
        let store = store(server.url(), lease).await;
        let permit = permit(&store, 1).await;
        (store, permit)
    });
    // Nothing drives the first runtime between the two.
    drop(permit);
    drop(first);
    current_thread().block_on(async {
        let mut raw = Raw::connect(server.port()).await;
        eventually("it is released", BOUND, async || live(&mut raw).await == 0).await;
    });
}

fn current_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
}

/// Refusals, grants and waits, many at a time: each has the right answer in time.
async fn serves(store: &RedisSemaphore, raw: &mut Raw) {
    for _ in 0..5 {
        let full = timeout(SOON, store.acquire(claim(1))).await;
        let full = full.expect("a full key is answered in time");
        assert!(matches!(full, Err(AcquireError::Full { .. })), "{full:?}");
    }
    let claims: Vec<_> = (0..100)
        .map(|_| tokio::spawn(store.acquire(Claim::new("b").with_limit(100))))
        .collect();
    let mut permits = Vec::new();
    for claim in claims {
        let answer = timeout(SOON, claim).await.expect("answered in time");
        permits.push(answer.expect("it did not panic").expect("there is room"));
    }
    let waiting = claim(2).with_wait(BOUND);
    let waiter = ended("a wait", store.acquire(waiting)).await;
    drop(waiter.expect("there is room"));
    drop(permits);
    eventually("all but one are released", SOON, async || {
        live(raw).await == 1 && raw.keys("*{concurrency:b}:held").await.is_empty()
    })
    .await;
    assert_eq!(queued(raw).await, 0);
}

#[test]
fn a_runtime_that_made_the_first_acquire_and_is_not_driven_holds_up_no_claim_of_another() {
    let server = RedisServer::start();
    let (idle, busy) = (current_thread(), Runtime::new().expect("a runtime starts"));
    let store = busy.block_on(store(server.url(), LEASE * 5));
    let _first = idle.block_on(permit(&store, 1));
    busy.block_on(async {
        let mut raw = Raw::connect(server.port()).await;
        serves(&store, &mut raw).await;
    });
}

#[test]
fn a_runtime_that_connected_and_is_not_driven_holds_up_claims_of_another_for_no_longer_than_a_cut()
{
    let server = RedisServer::start();
    let (idle, busy) = (current_thread(), Runtime::new().expect("a runtime starts"));
    let (store, _first) = idle.block_on(async {
        let store = store(server.url(), LEASE * 5).await;
        let permit = permit(&store, 1).await;
        (store, permit)
    });
    busy.block_on(async {
        let mut raw = Raw::connect(server.port()).await;
        eventually(
            "its claims have answers from the server",
            BOUND,
            async || {
                let answer = timeout(SOON, store.acquire(claim(1))).await;
                let answer = answer.expect("answered in time, whatever the answer");
                matches!(answer, Err(AcquireError::Full { .. }))
            },
        )
        .await;
        serves(&store, &mut raw).await;
    });
}
