//! The server's clock is set back by an hour: dead processes hold nothing up for that long, and
//! tokens grow.

use super::common::{BOUND, claim, permit, queued, store};
use std::time::Duration;
use testing::{clock::SteppedClock, fleet, redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(2);
/// A lease after the step, and what a busy machine takes.
const FREE: Duration = Duration::from_secs(5);
const HOUR: i64 = 3_600;

fn server() -> (RedisServer, SteppedClock) {
    let clock = SteppedClock::compile();
    (clock.server(), clock)
}

/// A store that has just started, beside the permit of a process that was killed before the clock
/// was set back.
async fn beside_a_dead_holder() -> (RedisServer, RedisSemaphore) {
    let (server, clock) = server();
    let store = store(server.url(), LEASE).await;
    let mut process = fleet::Process::start(&server.url(), LEASE);
    process.acquire("p", "a", 1).expect("there is room");
    process.kill();
    clock.set(-HOUR);
    (server, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holders_permit_is_free_a_lease_after_the_clock_was_set_back() {
    let (_server, store) = beside_a_dead_holder().await;
    eventually("it is free", FREE, async || {
        store.acquire(claim(1)).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holders_permit_goes_to_a_waiter_a_lease_after_the_clock_was_set_back() {
    let (_server, store) = beside_a_dead_holder().await;
    let waiting = claim(1).with_wait(FREE);
    let granted = store.acquire(waiting).await;
    assert!(granted.is_ok(), "{granted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_holds_the_queue_up_for_a_lease_at_most_after_the_clock_was_set_back() {
    let (server, clock) = server();
    let store = store(server.url(), LEASE).await;
    let holder = permit(&store, 1).await;
    let mut raw = Raw::connect(server.port()).await;
    let mut process = fleet::Process::start(&server.url(), LEASE);
    process.contend("w", "a", 1, Duration::ZERO);
    eventually("it waits", BOUND, async || queued(&mut raw).await == 1).await;
    process.kill();
    let waiter = tokio::spawn(store.acquire(claim(1).with_wait(FREE)));
    clock.set(-HOUR);
    assert!(holder.release().await);
    let granted = waiter.await.expect("it did not panic");
    assert!(granted.is_ok(), "{granted:?}");
}

/// The last token of a key whose keys in Redis are gone by now, all of them.
async fn token_of_an_expired_key(server: &RedisServer, store: &RedisSemaphore) -> Option<u64> {
    let mut raw = Raw::connect(server.port()).await;
    let last = permit(store, 1).await;
    let token = last.token();
    let keys = raw.keys("*{concurrency:a}*").await;
    assert!(last.release().await);
    // Reading an expired key deletes it. Otherwise the step would bring it back.
    let exists: Vec<_> = [b"EXISTS".to_vec()].into_iter().chain(keys).collect();
    eventually("its keys have expired", BOUND, async || {
        raw.cmd(&exists).await.int() == 0
    })
    .await;
    token
}

/// Keys live for a few of them.
const SHORT: Duration = Duration::from_millis(800);

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_an_expired_key_grow_after_the_clock_was_set_back() {
    let (server, clock) = server();
    let store = store(server.url(), SHORT).await;
    let last = token_of_an_expired_key(&server, &store).await;
    clock.set(-HOUR);
    let token = permit(&store, 1).await.token();
    assert!(token > last, "{token:?} after {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_an_expired_key_grow_for_a_process_that_connects_after_the_clock_was_set_back() {
    let (server, clock) = server();
    let old = store(server.url(), SHORT).await;
    let last = token_of_an_expired_key(&server, &old).await;
    clock.set(-HOUR);
    let new = store(server.url(), SHORT).await;
    let token = permit(&new, 1).await.token();
    assert!(token > last, "{token:?} after {last:?}");
}
