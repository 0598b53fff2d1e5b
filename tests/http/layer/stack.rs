//! The layer combined with other crates' layers.
//!
//! Promises: P9.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full, StreamBody};
use std::{
    convert::Infallible,
    future::{pending, ready},
    time::Duration,
};
use testing::http_requests::{limit, request};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_http::timeout::TimeoutLayer;
use tower_semaphore::{MemorySemaphore, OnLost, ResponseBody};

const TIMEOUT: Duration = Duration::from_secs(5);

fn timeout_layer() -> TimeoutLayer {
    TimeoutLayer::with_status_code(http::StatusCode::GATEWAY_TIMEOUT, TIMEOUT)
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_of_the_limit_releases_the_permit_and_answers() {
    let memory = MemorySemaphore::new();
    let never =
        service_fn(|_: Request<String>| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let service = ServiceBuilder::new()
        .layer(timeout_layer())
        .layer(limit(1, memory.clone()))
        .service(never);
    let answer = service.oneshot(request("alice")).await.unwrap();
    assert_eq!(answer.status(), 504);
    assert!(answer.into_body().is_end_stream());
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_default_body_is_empty() {
    let body = ResponseBody::<Full<Bytes>>::default();
    assert!(body.is_end_stream());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "");
}

#[tokio::test]
async fn a_body_can_be_boxed_while_it_holds_its_permit() {
    let memory = MemorySemaphore::new();
    let layer = limit(1, memory.clone()).with_on_lost(OnLost::Abort);
    let streaming = service_fn(|_: Request<String>| {
        let frames = futures_util::stream::iter([
            Ok::<_, Infallible>(http_body::Frame::data(Bytes::from("one"))),
            Ok(http_body::Frame::data(Bytes::from("two"))),
        ]);
        ready(Ok::<_, Infallible>(Response::new(StreamBody::new(frames))))
    });
    let answer = layer.layer(streaming).oneshot(request("alice")).await;
    let mut body = answer.unwrap().into_body().boxed();
    body.frame().await.unwrap().unwrap();
    assert_eq!(memory.busy_keys(), 1);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "two");
    assert_eq!(memory.busy_keys(), 0);
}
