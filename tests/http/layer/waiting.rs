//! Requests that wait for their permit.
//!
//! Promises: P10, P14.

use super::rig::{Answer, error, is_refused, ok, problem, send, values};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt, Full};
use std::{convert::Infallible, time::Duration};
use testing::http_requests::{limit, request};
use tokio::time::advance;
use tower::{Layer, Service};
use tower_semaphore::{AcquireError, Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
use tower_test::mock;

const WAIT: Duration = Duration::from_secs(5);

/// A layer that admits one request per account and lets the others wait.
fn patient(memory: &MemorySemaphore) -> ConcurrencyLimitLayer<key::Header> {
    limit(1, memory.clone()).with_wait(WAIT)
}

/// Sends a request that has to wait, and returns its pending future.
fn wait<S>(service: &mut S, account: &str) -> std::pin::Pin<Box<S::Future>>
where
    S: Service<Request<String>, Response = Answer, Error = Infallible>,
{
    let mut waiting = Box::pin(service.call(request(account)));
    assert!((&mut waiting).now_or_never().is_none(), "it does not wait");
    waiting
}

#[tokio::test]
async fn a_request_that_waits_is_admitted_when_a_body_ends_and_not_before() {
    let mut service = patient(&MemorySemaphore::new()).layer(ok());
    let mut body = send(&service, request("alice")).await.into_body();
    let mut waiting = wait(&mut service, "alice");
    body.frame().await.expect("a frame").expect("no error");
    let answer = (&mut waiting)
        .now_or_never()
        .expect("it is at the head of the queue");
    assert_eq!(answer.expect("no error").status(), 200);
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_wait_is_over_is_refused() {
    let memory = MemorySemaphore::new();
    let mut service = patient(&memory).layer(ok());
    let held = send(&service, request("alice")).await;
    let mut waiting = wait(&mut service, "alice");
    // Tokio's timers fire up to a millisecond late.
    advance(WAIT - Duration::from_millis(2)).await;
    assert!((&mut waiting).now_or_never().is_none());
    advance(Duration::from_millis(4)).await;
    let refused = waiting
        .now_or_never()
        .expect("it is over")
        .expect("no error");
    let wait = values(&refused, "retry-after");
    assert_eq!(
        wait,
        ["11"],
        "from the 5 s of the held permit, with a margin"
    );
    assert!(matches!(error(&refused), AcquireError::TimedOut { .. }));
    assert_eq!(problem(refused).await["status"], 429);
    drop(held);
    assert_eq!(memory.busy_keys(), 0, "it left something behind");
}

#[tokio::test]
async fn a_queue_that_is_full_refuses_at_once() {
    let layer = patient(&MemorySemaphore::new()).with_max_waiting(2);
    let mut service = layer.layer(ok());
    let _held = send(&service, request("alice")).await;
    let _queue = [wait(&mut service, "alice"), wait(&mut service, "alice")];
    let refused = service.call(request("alice")).now_or_never();
    let refused = refused.expect("at once").expect("no error");
    assert!(is_refused(&refused));
    assert!(matches!(error(&refused), AcquireError::QueueFull { .. }));
}

#[tokio::test]
async fn a_claim_may_wait_although_the_layer_does_not() {
    let patient = |parts: &Parts| match parts.headers.contains_key("x-patient") {
        true => Claim::new("alice").with_wait(WAIT),
        false => Claim::new("alice"),
    };
    let layer = ConcurrencyLimitLayer::new(1, patient, MemorySemaphore::new());
    let mut service = layer.layer(ok());
    let held = send(&service, request("alice")).await;
    assert!(is_refused(&send(&service, request("alice")).await));
    let mut request = request("alice");
    let yes = http::HeaderValue::from_static("1");
    request.headers_mut().insert("x-patient", yes);
    let mut waiting = Box::pin(service.call(request));
    assert!((&mut waiting).now_or_never().is_none());
    drop(held);
    assert!(waiting.now_or_never().is_some());
}

#[tokio::test]
async fn a_request_that_waits_does_not_reserve_the_inner_service() {
    let memory = MemorySemaphore::new();
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<String>, Response<Full<Bytes>>, _>(patient(&memory));
    handle.allow(1);
    let mut held = Box::pin(service.call(request("alice")));
    assert!((&mut held).now_or_never().is_none());
    let mut waiting = Box::pin(service.call(request("alice")));
    assert!((&mut waiting).now_or_never().is_none());
    // Only one request reached the inner service: the waiting one did not reserve it.
    let (called, _) = handle.next_request().await.expect("a request");
    assert_eq!(called.headers()["x-account-id"], "alice");
    handle.allow(1);
    let mut bob = Box::pin(service.call(request("bob")));
    assert!((&mut bob).now_or_never().is_none());
    let (called, _) = handle.next_request().await.expect("a request");
    assert_eq!(called.headers()["x-account-id"], "bob");
}
