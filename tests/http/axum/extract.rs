//! A handler that extracts its permit.
//!
//! Promises: P9.

use axum::{Router, body::Body, routing::get};
use http_body_util::BodyExt;
use testing::http_requests::{limit, request};
use tower::ServiceExt;
use tower_semaphore::{MemorySemaphore, Permit};

async fn available(permit: Permit) -> String {
    format!("{} left", permit.remaining())
}

async fn limit_if_any(permit: Option<Permit>) -> String {
    permit.map_or("exempt".into(), |permit| permit.limit().to_string())
}

fn routes() -> Router {
    Router::new()
        .route("/", get(available))
        .route("/any", get(limit_if_any))
}

async fn fetch(app: Router, path: &str) -> (u16, String) {
    let mut request = request::<Body>("alice");
    *request.uri_mut() = path.parse().expect("a path");
    let response = app.oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body");
    (
        status,
        String::from_utf8(body.to_bytes().into()).expect("text"),
    )
}

#[tokio::test]
async fn a_handler_may_extract_its_permit() {
    let app = routes().layer(limit(3, MemorySemaphore::new()));
    assert_eq!(fetch(app.clone(), "/").await, (200, "2 left".into()));
    assert_eq!(fetch(app, "/any").await, (200, "3".into()));
}

#[tokio::test]
async fn a_handler_without_a_limit_has_no_permit_to_extract() {
    let (status, text) = fetch(routes(), "/").await;
    assert_eq!(status, 500);
    assert_eq!(text, "the request has no permit: no limit has admitted it");
    assert_eq!(fetch(routes(), "/any").await, (200, "exempt".into()));
}
