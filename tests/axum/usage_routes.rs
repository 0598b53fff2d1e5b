//! The routes that show operators who holds what.

use axum::{Router, body::Body};
use futures_util::stream;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::future::ready;
use tower::ServiceExt;
use tower_semaphore::{
    Claim, Key, MemorySemaphore, Operate, Permit, Policy, Semaphore,
    semaphore::{BoxFuture, KeyStream, StoreError, StoredKey, Usage},
    usage_routes,
};

/// The answer of the routes, nested as an operator would nest them.
async fn get(semaphore: impl Operate, path: &str) -> (StatusCode, Value) {
    let app: Router = Router::new().nest("/debug/permits", usage_routes(semaphore));
    let request = Request::get(format!("/debug/permits/{path}"));
    let request = request.body(Body::empty()).expect("a request");
    let response = app.oneshot(request).await.expect("an answer");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body");
    let json = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    (status, json)
}

async fn permit(semaphore: &MemorySemaphore, key: impl Into<Key>, label: &'static str) -> Permit {
    let claim = Claim::new(key).with_limit(3).with_label(label);
    semaphore.acquire(claim).await.expect("there is room")
}

#[tokio::test]
async fn keys_and_usage_are_shown_for_keys_of_any_bytes() {
    let semaphore = MemorySemaphore::new().with_holders();
    let keys: [&[u8]; 6] = [
        b"ann",
        b"a/b?c#d",
        b"\xff\0\r\n",
        "\u{fc}".as_bytes(),
        b"..",
        b"%41",
    ];
    let mut permits = Vec::new();
    for key in keys {
        permits.push(permit(&semaphore, key, "job").await);
    }
    let (status, shown) = get(semaphore.clone(), "concurrency").await;
    assert_eq!((status, &shown["more"]), (StatusCode::OK, &json!(false)));
    let names = shown["keys"].as_array().expect("a list");
    assert_eq!(names.len(), keys.len());
    for name in names.iter().filter_map(Value::as_str) {
        let (status, usage) = get(semaphore.clone(), &format!("concurrency/{name}")).await;
        assert_eq!(status, StatusCode::OK, "{name}");
        assert_eq!(usage["held"][0]["label"], json!("job"), "{name}: {usage}");
    }
    let (_, other) = get(semaphore, "other").await;
    assert_eq!(other["keys"], json!([]));
}

#[tokio::test]
async fn a_label_of_any_text_is_one_json_string() {
    let semaphore = MemorySemaphore::new().with_holders();
    for label in [
        "\"}],\\",
        "</script>\u{2028}",
        "\0\n\u{1b}",
        "\u{1f600} \u{fc}",
    ] {
        let _permit = permit(&semaphore, "a", label).await;
        let (_, usage) = get(semaphore.clone(), "concurrency/a").await;
        assert_eq!(usage["held"][0]["label"], json!(label));
    }
}

#[tokio::test]
async fn nothing_is_changed_and_no_other_route_answers() {
    let semaphore = MemorySemaphore::new().with_holders();
    let permit = permit(&semaphore, "a", "job").await;
    let (_, usage) = get(semaphore.clone(), "concurrency/a").await;
    let id = usage["held"][0]["id"].as_str().expect("an id").to_owned();
    for path in ["", "concurrency/a/", &format!("concurrency/a/{id}")] {
        assert_eq!(get(semaphore.clone(), path).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(get(semaphore, "%FF").await.0, StatusCode::BAD_REQUEST);
    assert!(!permit.is_lost());
}

/// A store that answers as it was told.
struct Told(Result<usize, ()>);

impl Operate for Told {
    fn usage(&self, _: &Policy, _: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        Box::pin(ready(Err(StoreError::new("it failed"))))
    }

    fn keys(&self, _: &Policy) -> KeyStream {
        let failed = || Err(StoreError::new("it failed"));
        match self.0 {
            Ok(count) => Box::pin(stream::iter(
                (0..count).map(|key| Ok(StoredKey::Whole(key.into()))),
            )),
            Err(()) => Box::pin(stream::iter([Ok(StoredKey::Whole("a".into())), failed()])),
        }
    }

    fn revoke(&self, _: &Policy, _: &Key, _: &str) -> BoxFuture<Result<bool, StoreError>> {
        unreachable!("the routes only read")
    }
}

#[tokio::test]
async fn an_answer_has_a_bounded_number_of_keys() {
    for (count, shown, more) in [(1_000, 1_000, false), (1_000_000, 1_000, true)] {
        let (_, keys) = get(Told(Ok(count)), "concurrency").await;
        let names = keys["keys"].as_array().expect("a list");
        assert_eq!((names.len(), &keys["more"]), (shown, &json!(more)));
    }
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable() {
    for path in ["concurrency", "concurrency/a"] {
        assert_eq!(
            get(Told(Err(())), path).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
}
