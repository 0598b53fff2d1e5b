//! The number of requests that are admitted.
//!
//! Promises: P1, P21.

use super::rig::{is_refused, ok, send, statuses};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use testing::{
    http_requests::{limit, request},
    stubs::{Slow, Uncalled},
};
use tower::{Layer, Service};
use tower_semaphore::{ConcurrencyLimitLayer, Key, MemorySemaphore};
use tower_test::mock;

#[tokio::test]
async fn an_account_has_as_many_requests_in_flight_as_its_limit() {
    let service = limit(2, MemorySemaphore::new()).layer(ok());
    let requests = ["alice", "alice", "alice", "bob", "bob", "bob"].map(request);
    assert_eq!(
        statuses(&service, requests).await,
        [200, 200, 429, 200, 200, 429]
    );
}

#[tokio::test]
async fn a_refusal_takes_no_permit() {
    let service = limit(1, MemorySemaphore::new()).layer(ok());
    let first = send(&service, request("alice")).await;
    let refused = send(&service, request("alice")).await;
    drop(first);
    assert!(!is_refused(&send(&service, request("alice")).await));
    drop(refused);
}

#[tokio::test]
async fn an_exempt_request_is_not_counted() {
    let memory = MemorySemaphore::new();
    let exempt = |_: &http::request::Parts| None::<Key>;
    let service = ConcurrencyLimitLayer::new(0, exempt, memory.clone()).layer(ok());
    let requests = ["alice", "alice"].map(request);
    assert_eq!(statuses(&service, requests).await, [200, 200]);
    let answer = send(&service, request("alice")).await;
    assert_eq!(memory.busy_keys(), 0);
    assert!(!answer.headers().contains_key("ratelimit"));
    assert!(!answer.headers().contains_key("ratelimit-policy"));
}

#[tokio::test]
async fn a_limit_of_0_refuses_without_asking_the_store() {
    let service = limit(0, Uncalled).layer(ok());
    let answer = send(&service, request("alice")).await;
    assert!(is_refused(&answer));
    assert_eq!(answer.headers()["ratelimit"], r#""concurrency";r=0;t=1"#);
}

#[tokio::test]
async fn layers_of_one_policy_share_the_permits_of_a_key() {
    let memory = MemorySemaphore::new();
    let market = limit(1, memory.clone()).with_policy("market").layer(ok());
    let export = limit(1, memory).with_policy("market").layer(ok());
    let _first = send(&market, request("alice")).await;
    assert!(is_refused(&send(&export, request("alice")).await));
}

#[tokio::test]
async fn layers_of_two_policies_share_nothing() {
    let memory = MemorySemaphore::new();
    let market = limit(1, memory.clone()).with_policy("market").layer(ok());
    let export = limit(1, memory.clone()).with_policy("export").layer(ok());
    let _first = send(&market, request("alice")).await;
    let _second = send(&export, request("alice")).await;
    assert_eq!(memory.busy_keys(), 2);
    assert!(is_refused(&send(&export, request("alice")).await));
}

#[tokio::test]
async fn a_response_future_that_is_dropped_releases_its_permit() {
    let memory = MemorySemaphore::new();
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<String>, Response<Full<Bytes>>, _>(limit(1, memory.clone()));
    let mut response = service.call(request("alice"));
    assert!((&mut response).now_or_never().is_none());
    let (inner_request, _reply) = handle.next_request().await.expect("a request");
    drop(inner_request);
    assert_eq!(memory.busy_keys(), 1);
    drop(response);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_response_future_that_is_dropped_leaves_the_queue() {
    let slow = Slow::default();
    let mut service = limit(1, slow.clone()).layer(ok());
    let mut response = service.call(request("alice"));
    assert!((&mut response).now_or_never().is_none());
    assert_eq!(slow.waiting(), 1);
    drop(response);
    assert_eq!(slow.waiting(), 0);
}
