//! How many requests are admitted.

use super::rig::{Answer, is_refused, ok, send, statuses};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use testing::{
    http_requests::{limit, request},
    stubs::{Slow, Uncalled},
};
use tower::{Layer, Service, ServiceBuilder, service_fn};
use tower_semaphore::{ConcurrencyLimitLayer, Key, MemorySemaphore, ResponseBody};
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
async fn a_body_that_was_read_makes_room_for_the_next_request() {
    let service = limit(1, MemorySemaphore::new()).layer(ok());
    let first = send(&service, request("alice")).await;
    assert!(is_refused(&send(&service, request("alice")).await));
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "ok");
    assert!(!is_refused(&send(&service, request("alice")).await));
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
    let nobody = |_: &http::request::Parts| None::<Key>;
    let service = ConcurrencyLimitLayer::new(1, nobody, memory.clone()).layer(ok());
    let requests = ["alice", "alice"].map(request);
    assert_eq!(statuses(&service, requests).await, [200, 200]);
    let answer = send(&service, request("alice")).await;
    assert_eq!(memory.busy_keys(), 0);
    assert!(!answer.headers().contains_key("ratelimit"));
    assert!(!answer.headers().contains_key("ratelimit-policy"));
}

#[tokio::test]
async fn an_exempt_request_passes_although_the_limit_is_0() {
    let nobody = |_: &http::request::Parts| None::<Key>;
    let service = ConcurrencyLimitLayer::new(0, nobody, Uncalled).layer(ok());
    assert_eq!(statuses(&service, [request("alice")]).await, [200]);
}

#[tokio::test]
async fn a_limit_of_0_refuses_without_asking_the_store() {
    let service = limit(0, Uncalled).layer(ok());
    let answer = send(&service, request("alice")).await;
    assert!(is_refused(&answer));
    assert_eq!(answer.headers()["ratelimit"], r#""concurrency";r=0;t=1"#);
}

#[tokio::test]
async fn clones_of_a_service_count_together() {
    let service = limit(1, MemorySemaphore::new()).layer(ok());
    let first = send(&service.clone(), request("alice")).await;
    assert!(is_refused(&send(&service.clone(), request("alice")).await));
    drop(first);
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
async fn a_request_under_two_limits_needs_a_permit_of_each() {
    let memory = MemorySemaphore::new();
    let whole = ConcurrencyLimitLayer::new(2, |_: &_| "everybody", memory.clone());
    let each = limit(1, memory).with_policy("account");
    let service = ServiceBuilder::new().layer(whole).layer(each).service(ok());
    let first = nested(&service, "alice").await;
    assert_eq!(first, 200);
    let held = occupy(&service, "alice").await;
    assert_eq!(nested(&service, "alice").await, 429);
    assert_eq!(nested(&service, "bob").await, 200);
    let _second = occupy(&service, "bob").await;
    assert_eq!(nested(&service, "carol").await, 429);
    drop(held);
    assert_eq!(nested(&service, "carol").await, 200);
}

/// What comes out of two layers.
type Nested = Response<ResponseBody<ResponseBody<Full<Bytes>>>>;

async fn occupy<S>(service: &S, account: &str) -> Nested
where
    S: Service<Request<()>, Response = Nested, Error = std::convert::Infallible> + Clone,
{
    send(service, request(account)).await
}

async fn nested<S>(service: &S, account: &str) -> u16
where
    S: Service<Request<()>, Response = Nested, Error = std::convert::Infallible> + Clone,
{
    occupy(service, account).await.status().as_u16()
}

#[tokio::test]
async fn a_response_future_that_is_dropped_releases_its_permit() {
    let memory = MemorySemaphore::new();
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<()>, Response<Full<Bytes>>, _>(limit(1, memory.clone()));
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

#[tokio::test]
async fn a_handler_that_panics_releases_its_permit() {
    let memory = MemorySemaphore::new();
    let inner = service_fn(|_: Request<()>| async { panic!("on purpose") });
    let service = limit(1, memory.clone()).layer(inner);
    let response = tokio::spawn(async move {
        let _: Answer = send(&service, request("alice")).await;
    });
    assert!(response.await.unwrap_err().is_panic());
    assert_eq!(memory.busy_keys(), 0);
}
