//! Refusals and lost permits as gRPC clients see them.
//!
//! Promises: P21.

use super::rig::{Answer, Stalled, answer, ok, refused, send, values};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use std::{convert::Infallible, future::ready};
use testing::{
    http_requests::{limit, request},
    stubs::{Broken, Fickle},
};
use tower::{Layer, Service, service_fn};
use tower_semaphore::{ConcurrencyLimitLayer, OnLost};

const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A call by alice with this content type.
fn call_of_kind(kind: &'static str) -> Request<String> {
    let mut request = request("alice");
    *request.method_mut() = Method::POST;
    let kind = HeaderValue::from_static(kind);
    request.headers_mut().insert("content-type", kind);
    request
}

fn grpc() -> Request<String> {
    call_of_kind("application/grpc+proto")
}

fn assert_grpc(answer: &Answer, status: &str, message: &str) {
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(values(answer, "grpc-status"), [status]);
    assert_eq!(values(answer, "grpc-message"), [message]);
    assert_eq!(values(answer, "content-type"), ["application/grpc+proto"]);
    assert!(answer.body().is_end_stream());
    assert_eq!(answer.body().size_hint().exact(), Some(0));
}

#[tokio::test]
async fn a_refused_grpc_request_gets_resource_exhausted() {
    assert_grpc(&refused(grpc()).await, "8", "Too many requests in flight");
}

#[tokio::test]
async fn grpc_and_grpc_web_requests_are_recognized_by_their_whole_media_type() {
    for (kind, is_grpc) in [
        ("application/grpcfoo", false),
        ("application/grpc-webfoo", false),
        ("application/grpc-", false),
        ("application/grp", false),
        ("text/application/grpc", false),
        ("application/grpc", true),
        ("application/grpc+json", true),
        ("application/grpc;charset=utf-8", true),
        ("application/grpc ; charset=utf-8", true),
        ("Application/gRPC", true),
        ("application/grpc-web", true),
        ("application/grpc-web+proto", true),
        ("application/grpc-web-text+proto", true),
    ] {
        let answer = refused(call_of_kind(kind)).await;
        let status = if is_grpc { 200 } else { 429 };
        assert_eq!(answer.status(), status, "{kind}");
        let answered = values(&answer, "content-type");
        let expected = if is_grpc {
            kind
        } else {
            "application/problem+json"
        };
        assert_eq!(answered, [expected]);
        let status: &[&str] = if is_grpc { &["8"] } else { &[] };
        assert_eq!(values(&answer, "grpc-status"), status);
    }
}

/// A refusal in gRPC's form has status 200, and a shared cache may serve the answer to a GET to all clients.
#[tokio::test]
async fn a_request_that_is_no_post_is_no_grpc() {
    for kind in ["application/grpc", "application/grpc-web+proto"] {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
            let mut request = call_of_kind(kind);
            *request.method_mut() = method;
            let answer = refused(request).await;
            assert_eq!(answer.status(), 429);
            assert!(values(&answer, "grpc-status").is_empty());
        }
    }
}

#[tokio::test]
async fn over_http2_grpc_is_recognized_only_with_te_trailers_and_grpc_web_without() {
    for (kind, te, status) in [
        ("application/grpc", None, 429),
        ("application/grpc", Some("deflate"), 429),
        ("application/grpc", Some("trailers"), 200),
        ("application/grpc-web", None, 200),
    ] {
        let mut request = call_of_kind(kind);
        *request.version_mut() = Version::HTTP_2;
        if let Some(te) = te {
            let te = HeaderValue::from_static(te);
            request.headers_mut().insert("te", te);
        }
        assert_eq!(refused(request).await.status(), status, "{kind}, {te:?}");
    }
}

#[tokio::test]
async fn a_grpc_request_is_unavailable_when_the_store_fails() {
    let message = "Requests cannot be admitted for the moment";
    assert_grpc(&answer(Broken, grpc()).await, "14", message);
}

#[tokio::test]
async fn a_grpc_request_without_a_key_has_an_invalid_argument() {
    let mut request = grpc();
    request.headers_mut().remove("x-account-id");
    let message = "the header x-account-id is missing";
    assert_grpc(&answer(Broken, request).await, "3", message);
}

#[tokio::test]
async fn a_grpc_message_is_percent_encoded() {
    let error = |_: &http::request::Parts| Err::<&str, _>("50% of caf\u{e9}\n\u{7f}~ ");
    let layer = ConcurrencyLimitLayer::new(1, error, Broken);
    let answer = send(&layer.layer(ok()), grpc()).await;
    assert_grpc(&answer, "3", "50%25 of caf%C3%A9%0A%7F~ ");
}

#[tokio::test]
async fn the_pushback_of_a_grpc_request_is_its_retry_after_in_milliseconds() {
    for answer in [refused(grpc()).await, answer(Broken, grpc()).await] {
        let seconds: u64 = values(&answer, "retry-after")[0].parse().unwrap();
        let ms = (seconds * 1_000).to_string();
        assert_eq!(values(&answer, PUSHBACK), [ms]);
    }
}

#[tokio::test]
async fn a_request_that_is_no_grpc_or_that_no_retry_helps_has_no_pushback() {
    assert!(values(&refused(call_of_kind("text/plain")).await, PUSHBACK).is_empty());
    let mut nameless = grpc();
    nameless.headers_mut().remove("x-account-id");
    let answer = answer(Broken, nameless).await;
    assert!(values(&answer, PUSHBACK).is_empty());
    assert!(values(&answer, "retry-after").is_empty());
}

/// Answers with a body of this content type that never ends.
fn streaming(
    kind: &'static str,
) -> impl Service<Request<String>, Response = Response<Stalled>, Error = Infallible> + Clone {
    service_fn(move |_| {
        let mut response = Response::new(StreamBody::new(stream::pending()));
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert("content-type", kind);
        ready(Ok(response))
    })
}

/// The last frame, or the error, of an aborted body of this content type.
async fn end_of_aborted(kind: &'static str) -> Result<Frame<Bytes>, String> {
    let store = Fickle::default();
    let layer = limit(1, store.clone()).with_on_lost(OnLost::Abort);
    let service = layer.layer(streaming(kind));
    let mut body = send(&service, request("alice")).await.into_body();
    store.lose();
    let last = body.frame().await.expect("a last frame");
    assert!(body.is_end_stream());
    assert!(body.frame().await.is_none());
    assert!(!store.is_held());
    last.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_grpc_response_that_lost_its_permit_ends_in_trailers() {
    for kind in ["application/grpc", "application/grpc+proto"] {
        let last = end_of_aborted(kind).await.expect("no error");
        let trailers = last.into_trailers().expect("trailers");
        assert_eq!(trailers["grpc-status"], "14");
        assert_eq!(trailers["grpc-message"], "the permit was lost");
    }
}

#[tokio::test]
async fn other_responses_that_lost_their_permit_end_in_an_error() {
    // gRPC-Web puts trailers into the body as a message, and JSON has none, so these bodies end in an error.
    for kind in ["application/grpc-web", "application/json"] {
        let error = end_of_aborted(kind).await.expect_err("it is not whole");
        assert_eq!(error, "the permit was lost");
    }
}
