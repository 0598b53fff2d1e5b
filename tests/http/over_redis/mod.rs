//! Responses that hold permits in Redis: how a lost permit ends its response, and how a response's end releases its
//! permit.
//!
//! Promises: P4, P9, P23.

mod cooldown;
mod early;
#[cfg(unix)]
mod frozen;
mod nested;
mod streaming;

use std::time::Duration;
use streaming::{BOUND, Streaming};
use testing::{ids::id, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::{Instant, sleep};
use tower_semaphore::{Claim, OnLost, PermitLost, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(900);
const HELD: &str = "semaphore:2:{concurrency:a}:held";

async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    builder.connect(server.url()).await.expect("it connects")
}

/// True if another claim is granted the only permit, which it then releases.
async fn is_free(store: &RedisSemaphore) -> bool {
    let claim = Claim::new("a").with_limit(1);
    store.acquire(claim).await.is_ok()
}

/// Deletes the entry of the only permit and gives its place to another holder for one lease.
async fn replace_holder(raw: &mut Raw) {
    assert_eq!(raw.cmd(&["DEL", HELD]).await.int(), 1, "it was not there");
    let end = raw.server_time_ms().await + LEASE.as_millis() as i64;
    let [limit, weight] = [1, 1];
    let other = id("other", 1, [limit, weight, LEASE.as_millis() as u64]);
    raw.cmd(&["ZADD", HELD, &end.to_string(), &other]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_permit_was_deleted_ends_in_an_error_if_the_layer_says_so() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut streaming = Streaming::start(&store, OnLost::Abort).await;
    streaming.assert_flows().await;
    let mut raw = Raw::connect(server.port()).await;
    replace_holder(&mut raw).await;

    let error = streaming.next().await.expect("it does not just end");
    let error = error.expect_err("it is cut");
    assert!(error.is::<PermitLost>(), "{error}");
    assert!(
        streaming.next().await.is_none(),
        "something follows the error"
    );
    assert!(streaming.is_dropped(), "the inner body is still there");

    // The body has dropped its clone, so the handler's clone is the last one.
    drop(streaming.permit);
    eventually("the permit is free", BOUND, async || is_free(&store).await).await;
    eventually("nothing is left", BOUND, async || {
        raw.zmembers(HELD).await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stops_for_longer_than_a_lease_cuts_the_body_and_has_one_holder_when_it_goes_on()
 {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let mut streaming = Streaming::start(&ours, OnLost::Abort).await;
    streaming.assert_flows().await;
    let mut raw = Raw::connect(server.port()).await;
    server.stop();
    let error = streaming.next().await.expect("it does not just end");
    assert!(error.expect_err("it is cut").is::<PermitLost>());
    sleep(LEASE / 2).await;
    server.cont();
    let claim = Claim::new("a").with_limit(1);
    // After the stop, either the lost permit returns or a successor is granted: the first to ask wins.
    let mut successor = None;
    eventually("one of them is held", BOUND, async || {
        successor = other.acquire(claim.clone()).await.ok();
        successor.is_some() || !streaming.permit.is_lost()
    })
    .await;
    let is_successor = successor.is_some();
    let end = Instant::now() + LEASE * 2;
    while Instant::now() < end {
        assert_eq!(streaming.permit.is_lost(), is_successor);
        assert_eq!(raw.zmembers(HELD).await.len(), 1, "the limit is one");
        sleep(LEASE / 20).await;
    }
    assert_eq!(streaming.permit.release().await, !is_successor);
    if let Some(successor) = successor {
        assert!(!successor.is_lost());
        assert!(successor.release().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_reads_for_three_leases_keeps_its_permit() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let mut streaming = Streaming::start(&ours, OnLost::Abort).await;
    let end = Instant::now() + LEASE * 3;
    while Instant::now() < end {
        assert!(!is_free(&other).await, "another request got a permit");
        sleep(LEASE / 20).await;
    }
    streaming.assert_flows().await;
}
