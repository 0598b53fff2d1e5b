//! Rejections that a handler builds itself, and their `Retry-After`.
//!
//! Promises: P21.

use http::{Request, Response, StatusCode, request::Parts};
use serde_json::{Value, json};
use std::time::Duration;
use tower_semaphore::{
    AcquireError, Claim, MemorySemaphore, Rejection, Semaphore,
    semaphore::{ClaimError, StoreError},
};

fn parts(kind: &str) -> Parts {
    let request = Request::post("/export")
        .header("content-type", kind)
        .body(());
    request.expect("it is valid").into_parts().0
}

/// The refusal of a claim under this limit while all of its units are held.
async fn full(limit: u32) -> AcquireError {
    let (store, claim) = (
        MemorySemaphore::new(),
        Claim::new("ann").with_policy("export"),
    );
    let claim = claim.with_limit(limit).with_weight(limit);
    let _held = store.acquire(claim.clone()).await.expect("there is room");
    store.acquire(claim).await.expect_err("it is full")
}

fn fields(response: &Response<String>) -> [Option<&str>; 4] {
    [
        "retry-after",
        "ratelimit-policy",
        "ratelimit",
        "cache-control",
    ]
    .map(|name| {
        let value = response.headers().get(name)?;
        value.to_str().ok()
    })
}

#[tokio::test]
async fn a_refusal_in_a_handler_has_the_fields_of_the_layers_refusals() {
    let rejection = Rejection::of(&full(3).await, &parts("text/plain"));
    assert_eq!(
        (rejection.policy().as_str(), rejection.limit()),
        ("export", 3)
    );
    let response = rejection.into_response();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let policy = r#""export";q=3;qu="concurrent-requests""#;
    let limit = r#""export";r=0;t=1"#;
    assert_eq!(
        fields(&response),
        [Some("1"), Some(policy), Some(limit), Some("no-store")]
    );
    let problem: Value = serde_json::from_str(response.body()).expect("it is JSON");
    assert_eq!(problem["violated-policies"], json!(["export"]));
    assert!(response.extensions().get::<AcquireError>().is_some());
}

#[tokio::test]
async fn a_refusal_in_a_handler_is_a_status_for_a_grpc_client() {
    let response = Rejection::of(&full(1).await, &parts("application/grpc")).into_response();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1000");
}

#[test]
fn an_error_that_names_no_policy_leads_to_no_ratelimit_fields() {
    let store = AcquireError::from(StoreError::new("gone"));
    for (error, status) in [
        (AcquireError::Revoked, 429),
        (store, 503),
        (AcquireError::Closed, 503),
    ] {
        let response = Rejection::of(&error, &parts("text/plain")).into_response();
        assert_eq!(response.status(), status);
        assert_eq!(fields(&response), [Some("1"), None, None, Some("no-store")]);
        assert!(
            !response.body().contains("violated-policies"),
            "{}",
            response.body()
        );
    }
}

#[test]
fn an_error_of_the_claim_has_no_retry_after() {
    let error = AcquireError::from(ClaimError::EmptyKey);
    assert_eq!(error.retry_after(), None);
    let response = Rejection::of(&error, &parts("text/plain")).into_response();
    assert_eq!(
        (response.status(), fields(&response)[0]),
        (StatusCode::BAD_REQUEST, None)
    );
    for error in [
        AcquireError::Overloaded,
        AcquireError::queue_full(&Claim::new("ann")),
        AcquireError::Revoked,
    ] {
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_handler_of_axum_returns_a_rejection() {
    use axum::{Router, body::Body, response::IntoResponse, routing::post};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn export(request: axum::extract::Request) -> Result<(), Rejection> {
        let (parts, _) = request.into_parts();
        Err(Rejection::of(&full(1).await, &parts))
    }
    let app: Router = Router::new().route("/export", post(export));
    let request = Request::post("/export")
        .body(Body::empty())
        .expect("it is valid");
    let response = app.oneshot(request).await.into_response();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let body = response.into_body().collect().await.expect("it is read");
    assert!(body.to_bytes().starts_with(b"{"));
}
