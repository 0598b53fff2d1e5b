//! Refused calls as clients see them.

use crate::fixture::{Client, ask, client, limit, soon, wait_until_admitted};
use grpc::messages::Price;
use std::time::Duration;
use testing::{stubs::Broken, wait::eventually};
use tonic::{Code, Status, Streaming};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

async fn streams(client: &mut Client, count: usize) -> Vec<Streaming<Price>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let stream = client.follow(ask("ann", "endless")).await;
        streams.push(stream.expect("admitted"));
    }
    streams
}

fn metadata<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    let value = status.metadata().get(name);
    value.map(|value| value.to_str().expect("text"))
}

/// Asserts the status of a call that may be made again later.
fn assert_refused(status: &Status, code: Code, message: &str) {
    assert_eq!((status.code(), status.message()), (code, message));
    let seconds = metadata(status, "retry-after").expect("a time");
    let seconds: u64 = seconds.parse().expect("seconds");
    let ms = metadata(status, "grpc-retry-pushback-ms").expect("a time");
    assert_eq!(ms.parse(), Ok(seconds * 1_000));
}

#[tokio::test]
async fn the_sixth_call_in_flight_is_refused_as_resource_exhausted() {
    let mut client = client(limit(5, MemorySemaphore::new())).await;
    let _five = streams(&mut client, 5).await;
    let message = "Too many requests in flight";
    let unary = client.now(ask("ann", "carrot")).await.expect_err("refused");
    assert_refused(&unary, Code::ResourceExhausted, message);
    let policy = metadata(&unary, "ratelimit-policy");
    assert_eq!(
        policy,
        Some(r#""concurrency";q=5;qu="concurrent-requests""#)
    );
    let streaming = client.follow(ask("ann", "carrot")).await;
    let streaming = streaming.expect_err("refused");
    assert_refused(&streaming, Code::ResourceExhausted, message);

    let other = client.now(ask("bob", "carrot")).await;
    assert_eq!(other.expect("admitted").coins, 7);
}

#[tokio::test]
async fn a_call_is_unavailable_when_the_store_fails() {
    let mut client = client(limit(5, Broken)).await;
    let status = client.now(ask("ann", "carrot")).await.expect_err("refused");
    let message = "Requests cannot be admitted for the moment";
    assert_refused(&status, Code::Unavailable, message);
}

#[tokio::test]
async fn a_call_without_an_account_has_an_invalid_argument() {
    let mut client = client(limit(5, MemorySemaphore::new())).await;
    let mut nameless = ask("ann", "carrot");
    nameless.metadata_mut().clear();
    let status = client.now(nameless).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "the header x-account-id is missing");
    assert_eq!(metadata(&status, "retry-after"), None);
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), None);
}

#[tokio::test]
async fn calls_from_one_address_share_its_limit() {
    let by_address = ConcurrencyLimitLayer::new(1, key::peer_ip(), MemorySemaphore::new());
    let mut client = client(by_address).await;
    let held = client.follow(ask("ann", "endless")).await;
    let _held = held.expect("admitted");
    let status = client.now(ask("bob", "carrot")).await.expect_err("refused");
    let message = "Too many requests in flight";
    assert_refused(&status, Code::ResourceExhausted, message);
}

#[tokio::test]
async fn a_call_whose_wait_is_over_is_refused_as_resource_exhausted() {
    let layer = limit(1, MemorySemaphore::new()).with_wait(Duration::from_millis(100));
    let mut client = client(layer).await;
    let _held = streams(&mut client, 1).await;
    let waited = soon(client.now(ask("ann", "carrot"))).await;
    let status = waited.expect_err("refused");
    assert_refused(
        &status,
        Code::ResourceExhausted,
        "Too many requests in flight",
    );
}

#[tokio::test]
async fn a_call_that_waits_is_admitted_when_a_stream_ends() {
    let layer = limit(1, MemorySemaphore::new()).with_wait(Duration::from_secs(60));
    let mut client = client(layer).await;
    let held = streams(&mut client, 1).await;
    let mut waiter = client.clone();
    let waiting = tokio::spawn(async move { waiter.now(ask("ann", "carrot")).await });
    drop(held);
    let answer = soon(waiting).await.expect("no panic");
    assert_eq!(answer.expect("admitted").coins, 7);
}

#[tokio::test]
async fn a_call_whose_deadline_ends_while_it_waits_leaves_the_queue() {
    let memory = MemorySemaphore::new();
    let layer = limit(1, memory.clone()).with_max_waiting(1);
    let mut client = client(layer.with_wait(Duration::from_secs(60))).await;
    let held = streams(&mut client, 1).await;
    // Only one call may wait, so the second and the third show that the one before has left the queue. The deadline is
    // set for the server only: tonic's `set_timeout` would also end the call in the client.
    for _ in 0..3 {
        let mut hurried = ask("ann", "carrot");
        // 100 milliseconds.
        let deadline = "100m".parse().expect("text");
        hurried.metadata_mut().insert("grpc-timeout", deadline);
        let status = soon(client.now(hurried)).await.expect_err("too late");
        let is_deadline = matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled);
        assert!(is_deadline, "{status:?}");
    }
    drop(held);
    eventually(
        "no call holds a permit or waits",
        Duration::from_secs(20),
        async || memory.busy_keys() == 0,
    )
    .await;
    wait_until_admitted(&mut client, "ann").await;
}
