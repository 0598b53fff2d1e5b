//! How clients see a limit that an operator sets in the store.
//!
//! Promises: P2, P24.

use super::{BOUND, Held, arrive, request, wait_until_queued};
use http::{HeaderMap, Request, Response, StatusCode, header::CONTENT_TYPE};
use std::{convert::Infallible, sync::Arc, time::Duration};
use testing::stores::Store;
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, KeyExtractor,
    MemorySemaphore, Operate, Permit, Policy, Reason, Semaphore, key,
};

async fn ok(_: Request<String>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("done".to_owned()))
}

async fn set(store: &MemorySemaphore, limit: Option<u32>) {
    let set = store.set_limit(&Policy::DEFAULT, Some(&"ann".into()), limit, "");
    set.await.expect("the store answers");
}

async fn hold(store: &MemorySemaphore, units: u32) -> Permit {
    let claim = Claim::new("ann").with_limit(9).with_weight(units);
    store.acquire(claim).await.expect("there is room")
}

fn shared(store: &MemorySemaphore) -> Store {
    Arc::new(store.clone())
}

fn layer(store: &MemorySemaphore) -> GlobalConcurrencyLimitLayer {
    GlobalConcurrencyLimitLayer::new(1, "ann", store.clone())
}

fn keyed(store: &MemorySemaphore) -> ConcurrencyLimitLayer<impl KeyExtractor + Clone + use<>> {
    ConcurrencyLimitLayer::new(1, key::fixed("ann"), store.clone())
}

/// Waits for the answer to a request.
async fn done<B>(call: Held<B>) -> Response<B> {
    let answer = timeout(BOUND, call).await;
    answer.expect("it is answered").expect("it does not panic")
}

fn policy(headers: &HeaderMap) -> &str {
    headers["ratelimit-policy"].to_str().expect("it is text")
}

#[tokio::test]
async fn services_that_wait_follow_the_limit_in_the_order_of_their_queue() {
    let store = MemorySemaphore::new();
    let service = layer(&store).layer(service_fn(ok));
    let held = hold(&store, 1).await;
    let first = arrive(&service);
    wait_until_queued(&shared(&store)).await;
    let second = arrive(&service);
    set(&store, Some(2)).await;
    let answer = done(first).await;
    assert_eq!(
        policy(answer.headers()),
        "\"concurrency\";q=2;qu=\"concurrent-requests\""
    );
    assert!(!second.is_finished());
    set(&store, Some(3)).await;
    drop(done(second).await);
    drop((answer, held));
}

/// A waiter whose limit changes keeps its place, and does not count against `max_waiting` again.
#[tokio::test]
async fn a_service_keeps_its_position_in_a_full_queue() {
    let store = MemorySemaphore::new();
    let held = hold(&store, 9).await;
    let waits = layer(&store).with_max_waiting(1);
    let waits = arrive(&waits.layer(service_fn(ok)));
    for limit in 2..5 {
        wait_until_queued(&shared(&store)).await;
        set(&store, Some(limit)).await;
    }
    assert!(!waits.is_finished(), "nothing is free");
    drop(held);
    assert_eq!(done(waits).await.status(), StatusCode::OK);
}

/// Asserts that the key is closed: an operator has set its limit to 0. No `retry-after` is sent, because any time would
/// be wrong.
fn assert_closed<B>(answer: &Response<B>) {
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    let error = answer.extensions().get::<AcquireError>();
    assert!(
        matches!(error, Some(AcquireError::KeyClosed { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_closed_key_is_forbidden_to_waiting_requests_too() {
    let store = MemorySemaphore::new();
    let _held = hold(&store, 1).await;
    let waits = keyed(&store).with_wait(Duration::from_secs(60));
    let waits = waits.layer(service_fn(ok));
    let waiting = arrive(&waits);
    wait_until_queued(&shared(&store)).await;
    let global = layer(&store).layer(service_fn(ok));
    let waiting_globally = arrive(&global);
    set(&store, Some(0)).await;
    assert_closed(&done(waiting).await);
    assert_closed(&done(waiting_globally).await);
    assert_closed(&done(arrive(&waits)).await);
    assert_closed(&done(arrive(&global)).await);
    set(&store, None).await;
}

#[tokio::test]
async fn a_closed_key_is_a_problem_in_http_and_a_status_in_grpc() {
    let store = MemorySemaphore::new();
    set(&store, Some(0)).await;
    let layer = keyed(&store).with_rejection(|rejection| {
        assert!(matches!(rejection.reason(), Reason::Acquire { .. }));
        assert_eq!((rejection.limit(), rejection.retry_after()), (0, None));
        rejection.into_response()
    });
    let service = layer.layer(service_fn(ok));
    let Ok(answer) = service.clone().oneshot(request()).await;
    assert_closed(&answer);
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/problem+json");
    let body = http_body_util::BodyExt::collect(answer.into_body()).await;
    assert_eq!(
        body.expect("no error").to_bytes(),
        r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"an operator has closed the key","violated-policies":["concurrency"]}"#
    );
    let mut call = request();
    *call.method_mut() = http::Method::POST;
    let kind = "application/grpc".parse().expect("it is a value");
    call.headers_mut().insert(CONTENT_TYPE, kind);
    let Ok(answer) = service.oneshot(call).await;
    assert_eq!(
        (answer.status(), &answer.headers()["grpc-status"]),
        (StatusCode::OK, &"7".parse().expect("a value"))
    );
    assert!(!answer.headers().contains_key("grpc-retry-pushback-ms"));
}

#[tokio::test(start_paused = true)]
async fn refusals_show_the_limit_in_force_whatever_the_layer_says() {
    let store = MemorySemaphore::new();
    let held = hold(&store, 2).await;
    set(&store, Some(2)).await;
    let seen = "\"concurrency\";q=2;qu=\"concurrent-requests\"";
    for wait in [Duration::ZERO, Duration::from_millis(20)] {
        let service = keyed(&store).with_wait(wait).layer(service_fn(ok));
        let Ok(full) = service.oneshot(request()).await;
        assert_eq!(
            (full.status(), policy(full.headers())),
            (StatusCode::TOO_MANY_REQUESTS, seen)
        );
        let service = layer(&store).with_wait(wait).layer(service_fn(ok));
        let Ok(full) = service.oneshot(request()).await;
        assert_eq!(
            (full.status(), policy(full.headers())),
            (StatusCode::TOO_MANY_REQUESTS, seen)
        );
    }
    drop(held);
    let Ok(answer) = keyed(&store).layer(service_fn(ok)).oneshot(request()).await;
    assert_eq!(policy(answer.headers()), seen);
    assert_eq!(answer.headers()["ratelimit"], "\"concurrency\";r=1");
}

/// A limit in shadow counts the requests that fit, and refuses none.
#[tokio::test]
async fn a_limit_in_shadow_follows_the_limit_in_force() {
    let store = MemorySemaphore::new();
    set(&store, Some(0)).await;
    let service = keyed(&store).with_shadow(true).layer(service_fn(ok));
    let Ok(answer) = service.clone().oneshot(request()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    set(&store, Some(2)).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let Ok(answer) = service.clone().oneshot(request()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        held.push(answer);
    }
    let usage = store.usage(&Policy::DEFAULT, &"ann".into()).await;
    let usage = usage.expect("the store answers");
    assert_eq!((usage.limit, usage.units), (Some(2), 2));
}
