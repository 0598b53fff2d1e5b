//! The response to a refused request.
//!
//! Promises: P18, P21.

use super::rig::{answer, is_refused, ok, problem, refused, send, values};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use std::{error::Error, sync::Arc, time::Duration};
use testing::{
    http_requests::{limit, request},
    stubs::{Broken, Closed, Failing, Fleet, Overloaded, Uncalled},
};
use tower::Layer;
use tower_semaphore::{
    AcquireError, ConcurrencyLimitLayer, KeyError, MemorySemaphore, Reason, Rejection, Semaphore,
    key::{self, Key},
};

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_quota_exceeded_problem() {
    let answer = refused(request("alice")).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(values(&answer, "retry-after"), ["1"]);
    let quota = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests in flight",
        "status": 429,
        "violated-policies": ["concurrency"],
    });
    assert_eq!(problem(answer).await, quota);
}

#[tokio::test]
async fn a_failed_store_is_a_reduced_capacity_problem() {
    let answer = answer(Broken, request("alice")).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(values(&answer, "retry-after"), ["1"]);
    let reduced = json!({
        "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "title": "Requests cannot be admitted for the moment",
        "status": 503,
    });
    assert_eq!(problem(answer).await, reduced);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_limit_that_refused() {
    // This store always refuses. Its answer has a limit of 7 and 6 held units, so that `r` is not 0.
    let answer = answer(Fleet, request("alice")).await;
    assert_eq!(answer.status(), 429);
    let policy = r#""fleet";q=7;qu="concurrent-requests""#;
    assert_eq!(values(&answer, "ratelimit-policy"), [policy]);
    assert_eq!(values(&answer, "ratelimit"), [r#""fleet";r=1;t=1"#]);
    let problem = problem(answer).await;
    assert_eq!(problem["violated-policies"], json!(["fleet"]));
}

#[tokio::test]
async fn a_store_that_fails_during_a_wait_or_is_overloaded_or_shut_down_is_503() {
    let stores: [Arc<dyn Semaphore>; 3] =
        [Arc::new(Failing), Arc::new(Overloaded), Arc::new(Closed)];
    for store in stores {
        let layer = limit(1, store).with_wait(Duration::from_secs(5));
        let answer = send(&layer.layer(ok()), request("alice")).await;
        assert_eq!(answer.status(), 503);
        assert_eq!(values(&answer, "retry-after"), ["1"]);
    }
}

#[tokio::test]
async fn no_cache_stores_a_refusal() {
    let mut grpc = request::<String>("alice");
    *grpc.method_mut() = Method::POST;
    let kind = HeaderValue::from_static("application/grpc");
    grpc.headers_mut().insert("content-type", kind);
    let bare = limit(0, MemorySemaphore::new()).with_rejection(|_| Response::new("no".to_owned()));
    for answer in [
        refused(request("alice")).await,
        refused(grpc).await,
        answer(Broken, request("alice")).await,
        answer(Broken, Request::new(String::new())).await,
        send(&bare.layer(ok()), request("alice")).await,
    ] {
        assert_eq!(values(&answer, "cache-control"), ["no-store"]);
    }
}

#[tokio::test]
async fn a_custom_rejection_decides_about_caches() {
    let layer = limit(0, MemorySemaphore::new()).with_rejection(|rejection| {
        let mut response = rejection.into_response();
        let private = HeaderValue::from_static("private");
        response.headers_mut().insert("cache-control", private);
        response
    });
    let answer = send(&layer.layer(ok()), request("alice")).await;
    assert_eq!(values(&answer, "cache-control"), ["private"]);
}

/// An extension that is missing in every request. No client may see its name.
#[derive(Clone)]
struct Secret;

impl From<Secret> for Key {
    fn from(_: Secret) -> Self {
        "secret".into()
    }
}

#[tokio::test]
async fn a_missing_extension_is_500_and_no_client_sees_its_type() {
    let by_extension = key::from_extension::<Secret>();
    let service = ConcurrencyLimitLayer::new(1, by_extension, Uncalled).layer(ok());
    let answer = send(&service, request("alice")).await;
    assert_eq!(answer.status(), 500);
    let error = answer.extensions().get::<KeyError>().cloned();
    assert!(error.expect("a reason").to_string().contains("Secret"));
    let said = problem(answer).await["detail"].to_string();
    assert!(said.contains("has not provided"), "{said}");
    assert!(!said.contains("Secret") && !said.contains("::"), "{said}");
    let mut grpc = request::<String>("alice");
    *grpc.method_mut() = Method::POST;
    let kind = HeaderValue::from_static("application/grpc");
    grpc.headers_mut().insert("content-type", kind);
    let said = values(&send(&service, grpc).await, "grpc-message").concat();
    assert!(said.contains("has not provided"), "{said}");
    assert!(!said.contains("Secret") && !said.contains("::"), "{said}");
}

#[tokio::test]
async fn a_policy_name_of_any_text_is_one_json_string() {
    let name = "a \"b\" \\ \n \u{1} \u{7f} caf\u{e9} \u{1f40d}";
    let service = limit(0, MemorySemaphore::new())
        .with_policy(name)
        .layer(ok());
    let problem = problem(send(&service, request("alice")).await).await;
    assert_eq!(problem["violated-policies"], json!([name]));
}

#[tokio::test]
async fn an_account_s_name_is_in_no_refusal() {
    let answer = refused(request("alice")).await;
    assert!(!format!("{:?}", answer.headers()).contains("alice"));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&body).contains("alice"));
}

#[tokio::test]
async fn the_error_is_in_the_response_s_extensions() {
    let full = refused(request("alice")).await;
    let error = full.extensions().get::<AcquireError>().unwrap();
    assert!(matches!(
        error,
        AcquireError::Full {
            limit: 1,
            held: 1,
            ..
        }
    ));
    let failed = answer(Broken, request("alice")).await;
    let error = failed.extensions().get::<AcquireError>().unwrap();
    assert_eq!(error.source().unwrap().to_string(), "connection refused");
    let nameless = answer(MemorySemaphore::new(), Request::new(String::new())).await;
    let error = nameless.extensions().get::<KeyError>().unwrap();
    assert!(matches!(error, KeyError::Missing { .. }));
}

#[tokio::test]
async fn a_store_s_error_is_in_no_response() {
    let answer = answer(Broken, request("alice")).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&body).contains("connection refused"));
}

/// A custom response to a rejection. Its text is `ERROR, LIMIT by POLICY at PATH`.
fn custom(rejection: &Rejection) -> Response<String> {
    let said = match rejection.reason() {
        Reason::Acquire {
            error: AcquireError::Full { held, .. },
            ..
        } => format!("{held} held"),
        Reason::Acquire { error, .. } => error.to_string(),
        Reason::Key { error, .. } => error.to_string(),
        _ => "something else".into(),
    };
    let policy = rejection.policy();
    let path = rejection.parts().uri.path();
    let text = format!("{said}, {} by {policy} at {path}", rejection.limit());
    let mut response = Response::new(text);
    *response.status_mut() = StatusCode::IM_A_TEAPOT;
    response
}

async fn custom_text(semaphore: impl Semaphore, request: Request<String>) -> Bytes {
    let layer = limit(0, semaphore)
        .with_policy("market")
        .with_rejection(|rejection| custom(&rejection));
    let answer = send(&layer.layer(ok()), request).await;
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
    assert!(values(&answer, "retry-after").is_empty());
    let body = answer.into_body().collect().await;
    body.expect("a body").to_bytes()
}

#[tokio::test]
async fn a_custom_rejection_replaces_the_whole_response() {
    let memory = MemorySemaphore::new();
    let full = custom_text(memory.clone(), request("alice")).await;
    assert_eq!(full, "0 held, 0 by market at /");
    let nameless = custom_text(memory, Request::new(String::new())).await;
    assert_eq!(
        nameless,
        "the header x-account-id is missing, 0 by market at /"
    );
}

#[tokio::test(start_paused = true)]
async fn a_custom_rejection_may_change_the_usual_response() {
    let layer = limit(0, MemorySemaphore::new()).with_rejection(|rejection| {
        let mut response = rejection.into_response();
        let slower = HeaderValue::from_static("30");
        response.headers_mut().insert("retry-after", slower);
        response
    });
    let answer = send(&layer.layer(ok()), request("alice")).await;
    assert!(is_refused(&answer));
    assert_eq!(values(&answer, "retry-after"), ["30"]);
    assert_eq!(values(&answer, "ratelimit"), [r#""concurrency";r=0;t=1"#]);
}

#[tokio::test]
async fn a_custom_rejection_may_be_a_response_of_axum() {
    let layer = limit(0, MemorySemaphore::new()).with_rejection(|rejection| {
        let reason = rejection.reason().clone();
        (StatusCode::IM_A_TEAPOT, format!("{reason:?}")).into_response()
    });
    let answer = send(&layer.layer(ok()), request("alice")).await;
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
    let length = answer.body().size_hint().exact();
    let body = answer.into_body().boxed().collect().await;
    let body = body.expect("a body").to_bytes();
    assert_eq!(length, Some(body.len() as u64));
    assert!(body.starts_with(b"Acquire { error: Full"));
}

#[tokio::test]
async fn the_body_of_a_custom_rejection_may_stream_and_fail() {
    let layer = limit(0, MemorySemaphore::new()).with_rejection(|_| {
        let frames = [Ok(Frame::data(Bytes::from("no"))), Err("torn")];
        Response::new(StreamBody::new(stream::iter(frames)))
    });
    let mut body = send(&layer.layer(ok()), request("alice")).await.into_body();
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().expect("data"), "no");
    assert!(!body.is_end_stream());
    let error = body.frame().await.expect("a frame").expect_err("it fails");
    assert_eq!(error.to_string(), "torn");
}
