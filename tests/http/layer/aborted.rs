//! A request that loses its permit before its response has a head.
//!
//! Promises: P23.

use super::rig::{Answer, ok, problem, send, values};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use std::{
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use testing::{
    http_requests::{ACCOUNT, limit, request},
    in_flight::{InFlight, One},
    stubs::Fickle,
};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{
    ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, MemorySemaphore, OnLost, Permit,
    PermitLost, Reason, Rejection, ReleaseAt, key,
};

const MAX_HOLD: Duration = Duration::from_millis(500);
const WORK: Duration = Duration::from_millis(1_500);

/// A layer that admits one request per account, each for a limited time.
fn bounded(memory: &MemorySemaphore, on_lost: OnLost) -> ConcurrencyLimitLayer<key::Header> {
    let layer = limit(1, memory.clone()).with_max_hold(MAX_HOLD);
    layer.with_on_lost(on_lost)
}

/// A service that answers after `WORK`, when the longest hold is over. The witness counts the running calls.
fn working(
    witness: &InFlight,
) -> impl Service<Request<String>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ use<> {
    let witness = witness.clone();
    service_fn(move |request: Request<String>| {
        let inside = (witness.begin(), request);
        async move {
            sleep(WORK).await;
            drop(inside);
            Ok(Response::new("done".into()))
        }
    })
}

/// The number of running calls.
fn inside(witness: &InFlight) -> usize {
    witness.restart();
    witness.most()
}

/// Asserts that this is the response to an aborted request.
fn assert_aborted<B>(answer: &Response<B>) {
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.extensions().get::<PermitLost>().is_some());
    assert!(answer.headers().contains_key("retry-after"));
    let policy = "\"concurrency\";q=1;qu=\"concurrent-requests\"";
    assert_eq!(values(answer, "ratelimit-policy"), [policy]);
}

#[tokio::test(start_paused = true)]
async fn the_handler_is_dropped_before_the_503_and_the_next_request_is_admitted() {
    let (memory, witness) = (MemorySemaphore::new(), InFlight::default());
    let service = bounded(&memory, OnLost::Abort).layer(working(&witness));
    let start = Instant::now();
    let answer: Answer = send(&service, request("alice")).await;
    assert!(start.elapsed() < WORK, "{:?}", start.elapsed());
    assert_aborted(&answer);
    assert_eq!((witness.begun(), inside(&witness)), (1, 0));
    assert_eq!(memory.busy_keys(), 0);
    let next = bounded(&memory, OnLost::Abort).layer(ok());
    assert_eq!(
        send::<_, Answer>(&next, request("alice")).await.status(),
        200
    );
    let problem = problem(answer).await;
    let kind = "about:blank";
    assert_eq!(
        (&problem["type"], &problem["detail"]),
        (&kind.into(), &"the permit was lost".into())
    );
}

#[tokio::test(start_paused = true)]
async fn by_default_the_handler_finishes_beside_the_next_request() {
    let (memory, witness) = (MemorySemaphore::new(), InFlight::default());
    let service = bounded(&memory, OnLost::Finish).layer(working(&witness));
    let first = tokio::spawn({
        let service = service.clone();
        async move { send::<_, Answer>(&service, request("alice")).await }
    });
    sleep(MAX_HOLD + Duration::from_millis(5)).await;
    assert_eq!((inside(&witness), memory.busy_keys()), (1, 0));
    let next: Answer = send(&service, request("alice")).await;
    assert_eq!(next.status(), 200);
    let first = first.await.expect("no panic");
    assert_eq!(
        first.into_body().collect().await.unwrap().to_bytes(),
        "done"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_has_released_its_permit_outlives_the_longest_hold() {
    let memory = MemorySemaphore::new();
    let handler = service_fn(async |request: Request<String>| {
        let permit = request.extensions().get::<Permit>();
        assert!(permit.expect("it is admitted").release().await);
        sleep(WORK).await;
        Ok::<_, Infallible>(Response::new(Full::from("done")))
    });
    let service = bounded(&memory, OnLost::Abort).layer(handler);
    let answer: Answer = send(&service, request("alice")).await;
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "done");
}

/// A service that is never ready. The witness counts it until its last clone is dropped.
#[derive(Clone)]
struct Unready {
    _inside: Arc<One>,
}

impl Service<Request<String>> for Unready {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Pending
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        panic!("it is not ready")
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_is_dropped_too() {
    let (memory, witness) = (MemorySemaphore::new(), InFlight::default());
    let unready = Unready {
        _inside: Arc::new(witness.begin()),
    };
    let service = bounded(&memory, OnLost::Abort).layer(unready);
    let answer = timeout(2 * MAX_HOLD, service.oneshot(request("alice"))).await;
    let answer: Answer = answer.expect("in time").unwrap();
    assert_aborted(&answer);
    assert_eq!((inside(&witness), memory.busy_keys()), (0, 0));
}

#[tokio::test]
async fn a_response_that_is_ready_together_with_the_loss_is_dropped() {
    let store = Fickle::default();
    let losing = store.clone();
    let handler = service_fn(move |_: Request<String>| {
        losing.lose();
        ready(Ok::<_, Infallible>(Response::new(Full::from("late"))))
    });
    let service = limit(1, store.clone()).with_on_lost(OnLost::Abort);
    let answer: Answer = send(&service.layer(handler), request("alice")).await;
    assert_aborted(&answer);
    assert!(!store.is_held());
}

#[tokio::test(start_paused = true)]
async fn under_release_at_head_a_lost_permit_ends_the_handler_but_no_body() {
    let (memory, witness) = (MemorySemaphore::new(), InFlight::default());
    let layer = bounded(&memory, OnLost::Abort).with_release(ReleaseAt::Head);
    let answer: Answer = send(&layer.layer(working(&witness)), request("alice")).await;
    assert_aborted(&answer);
    let answer: Answer = send(&layer.layer(ok()), request("alice")).await;
    sleep(2 * MAX_HOLD).await;
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
}

/// A limit in shadow counts the requests that fit, and ends none.
#[tokio::test(start_paused = true)]
async fn a_handler_under_a_limit_in_shadow_goes_on() {
    let (memory, witness) = (MemorySemaphore::new(), InFlight::default());
    let layer = bounded(&memory, OnLost::Abort).with_shadow(true);
    let answer: Answer = send(&layer.layer(working(&witness)), request("alice")).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_rejection_has_its_reason_and_the_request_s_head_without_extensions() {
    let (memory, seen) = (MemorySemaphore::new(), Arc::new(Mutex::new(None)));
    let see = Arc::clone(&seen);
    let layer = bounded(&memory, OnLost::Abort).with_rejection(move |rejection: Rejection| {
        let parts = rejection.parts();
        let account = parts.headers[ACCOUNT].to_str().expect("text").to_owned();
        let head = (parts.method.clone(), parts.uri.to_string(), account);
        let is_aborted = matches!(rejection.reason(), Reason::Aborted { .. });
        *see.lock().unwrap() = Some((head, parts.extensions.is_empty(), is_aborted));
        rejection.into_response()
    });
    let request = Request::post("/buy?item=7").header(ACCOUNT, "alice");
    let request = request.extension(Arc::new(())).body(String::new()).unwrap();
    let answer: Answer = send(&layer.layer(working(&InFlight::default())), request).await;
    assert_aborted(&answer);
    let head = (
        http::Method::POST,
        "/buy?item=7".to_owned(),
        "alice".to_owned(),
    );
    assert_eq!(*seen.lock().unwrap(), Some((head, true, true)));
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_is_unavailable() {
    let memory = MemorySemaphore::new();
    let mut call = request::<String>("alice");
    *call.method_mut() = http::Method::POST;
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        call.headers_mut().insert(name, value.parse().unwrap());
    }
    let service = bounded(&memory, OnLost::Abort).layer(working(&InFlight::default()));
    let answer: Answer = send(&service, call).await;
    assert_eq!(
        (answer.status(), values(&answer, "grpc-status")),
        (StatusCode::OK, vec!["14".to_owned()])
    );
    assert_eq!(values(&answer, "grpc-message"), ["the permit was lost"]);
    assert!(answer.headers().contains_key("grpc-retry-pushback-ms"));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_global_limit_is_ended_too() {
    let (memory, witness) = (MemorySemaphore::new(), InFlight::default());
    let layer = GlobalConcurrencyLimitLayer::new(1, "host", memory.clone());
    let layer = layer.with_max_hold(MAX_HOLD).with_on_lost(OnLost::Abort);
    let mut service = layer.layer(working(&witness));
    let answer: Answer = service
        .ready()
        .await
        .unwrap()
        .call(request("alice"))
        .await
        .unwrap();
    assert_aborted(&answer);
    assert_eq!((inside(&witness), memory.busy_keys()), (0, 0));
    assert!(
        service.ready().now_or_never().is_some(),
        "its permit is free"
    );
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_an_outer_limit_ends_the_inner_one() {
    let (outer, inner, witness) = (
        MemorySemaphore::new(),
        MemorySemaphore::new(),
        InFlight::default(),
    );
    let routes = limit(1, inner.clone()).with_policy("route");
    let service = bounded(&outer, OnLost::Abort).layer(routes.layer(working(&witness)));
    let answer = send::<_, Response<_>>(&service, request("alice")).await;
    assert_aborted(&answer);
    assert_eq!(
        (inside(&witness), outer.busy_keys(), inner.busy_keys()),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn a_release_by_the_handler_is_no_loss() {
    let memory = MemorySemaphore::new();
    let handler = service_fn(async |request: Request<String>| {
        let permit = request.extensions().get::<Permit>().expect("a permit");
        assert!(permit.release().await);
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Response::new(Full::from("done")))
    });
    let service = bounded(&memory, OnLost::Abort).layer(handler);
    let answer: Answer = send(&service, request("alice")).await;
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "done"
    );
}
