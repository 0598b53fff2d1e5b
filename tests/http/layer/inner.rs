//! How the layer uses the service under it.
//!
//! Promises: P9, P10.

use super::rig::{is_refused, send};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};
use testing::http_requests::{limit, request};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::MemorySemaphore;
use tower_test::mock;

type FullResponse = Response<Full<Bytes>>;

/// A service that must be ready before each call. Its clones are not ready.
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<String>> for Strict {
    type Response = FullResponse;
    type Error = Infallible;
    type Future = Ready<Result<FullResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called before it was ready"
        );
        ready(Ok(Response::new("ok".into())))
    }
}

/// The inner service's error, which the layer passes on unboxed.
#[derive(Debug, PartialEq, Eq)]
struct InnerError(u8);

#[tokio::test]
async fn the_clone_that_is_called_was_ready() {
    let service = limit(1, MemorySemaphore::new()).layer(Strict { ready: false });
    for _ in 0..2 {
        let answer = send(&service, request("alice")).await;
        assert_eq!(answer.status(), 200);
    }
}

#[tokio::test]
async fn the_layer_is_ready_although_the_service_is_not() {
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<String>, FullResponse, _>(limit(1, MemorySemaphore::new()));
    handle.allow(0);
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    let mut response = service.call(request("alice"));
    assert!((&mut response).now_or_never().is_none());
    handle.allow(1);
    assert!((&mut response).now_or_never().is_none());
    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_response(Response::new("ok".into()));
    assert_eq!(response.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_refused_request_reserves_nothing() {
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<String>, FullResponse, _>(limit(1, MemorySemaphore::new()));
    // For alice's first request and for bob's, unless the refused request has reserved one of the calls.
    handle.allow(2);
    let mut first = service.call(request("alice"));
    assert!((&mut first).now_or_never().is_none());
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    let refused = service.call(request("alice")).await.unwrap();
    assert!(is_refused(&refused));
    let mut other = service.call(request("bob"));
    assert!((&mut other).now_or_never().is_none());
    assert!(handle.next_request().await.is_some());
    let (inner_request, _reply) = handle.next_request().await.unwrap();
    assert_eq!(inner_request.headers()["x-account-id"], "bob");
}

#[tokio::test]
async fn an_error_of_the_service_keeps_its_type_and_frees_the_permit() {
    let memory = MemorySemaphore::new();
    let inner = service_fn(|_: Request<String>| ready(Err::<FullResponse, _>(InnerError(7))));
    let service = limit(1, memory.clone()).layer(inner);
    let mut response = service.oneshot(request("alice"));
    assert_eq!((&mut response).await.err(), Some(InnerError(7)));
    assert_eq!(memory.busy_keys(), 0);
    drop(response);
}

/// A service whose readiness always fails.
#[derive(Clone)]
struct Failed;

impl Service<Request<String>> for Failed {
    type Response = FullResponse;
    type Error = InnerError;
    type Future = Ready<Result<FullResponse, InnerError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        Poll::Ready(Err(InnerError(8)))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        panic!("called although it is not ready")
    }
}

#[tokio::test]
async fn a_service_that_fails_before_the_call_frees_the_permit() {
    let memory = MemorySemaphore::new();
    let mut service = limit(1, memory.clone()).layer(Failed);
    let mut response = service.call(request("alice"));
    assert_eq!((&mut response).await.err(), Some(InnerError(8)));
    assert_eq!(memory.busy_keys(), 0);
    drop(response);
}

#[tokio::test]
async fn the_request_and_the_response_pass_unchanged() {
    let inner = service_fn(|request: Request<String>| {
        let mut response = Response::new(Full::from(request.uri().path().to_owned()));
        *response.status_mut() = http::StatusCode::CREATED;
        *response.version_mut() = request.version();
        response.extensions_mut().insert(request.into_body());
        ready(Ok::<_, Infallible>(response))
    });
    let mut inner_request: Request<String> = request("alice");
    *inner_request.uri_mut() = http::Uri::from_static("/market");
    *inner_request.version_mut() = http::Version::HTTP_2;
    *inner_request.body_mut() = "an offer".into();
    let service = limit(1, MemorySemaphore::new()).layer(inner);
    let Ok(response) = service.oneshot(inner_request).await;
    assert_eq!(response.status(), 201);
    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(response.extensions().get(), Some(&"an offer".to_owned()));
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    assert_eq!(body.unwrap().to_bytes(), "/market");
}
