//! Routes for operators: who holds what, as JSON.

use crate::semaphore::{Key, KeyStream, Operate, Policy, StoreError, StoredKey};
use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::{future::poll_fn, sync::Arc};

/// What is written as it is in a segment of a path: the characters that RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The most keys that an answer has.
const MAX_KEYS: usize = 1_000;

type Operated = Arc<dyn Operate>;

/// Routes that show who holds what, to be nested behind an operator's own authentication: they have none,
/// and show keys and labels. They change nothing.
///
/// | route | answer |
/// |---|---|
/// | `GET /{policy}` | `{"policy","keys":[…],"hashed":[…],"more"}`: keys with permits or waiters, 1,000 at most; `more`: there are others |
/// | `GET /{policy}/{key}` | the [usage](crate::semaphore::Usage::to_json) of a key |
///
/// A policy and a key are one segment of the path each, with every byte but letters, digits and `-_.~`
/// percent-encoded: so any bytes can be written. An answer has them in that form too, ready for a path.
/// `hashed` has the SHA-256 of the keys of which the [store](crate::semaphore::StoredKey::Hashed) keeps no
/// more. A policy that is not UTF-8 is answered with status 400, and a store that fails with 503.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use tower_semaphore::{MemorySemaphore, usage_routes};
///
/// let semaphore = MemorySemaphore::new().with_holders();
/// let operators = usage_routes(semaphore.clone()); // .layer(your_authentication)
/// let app: Router = Router::new().nest("/debug/permits", operators);
/// # drop(app);
/// ```
pub fn usage_routes<S: Clone + Send + Sync + 'static>(semaphore: impl Operate) -> Router<S> {
    let semaphore: Operated = Arc::new(semaphore);
    Router::new()
        .route("/{policy}", get(keys))
        .route("/{policy}/{key}", get(usage))
        .with_state(semaphore)
}

async fn keys(State(semaphore): State<Operated>, request: Request) -> Response {
    let [policy] = last_segments(&request);
    let Some(policy) = policy_of(policy) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let found = first_keys(semaphore.keys(&policy)).await;
    answer(found.map(|(keys, more)| keys_json(&policy, &keys, more)))
}

async fn usage(State(semaphore): State<Operated>, request: Request) -> Response {
    let [policy, key] = last_segments(&request);
    let Some(policy) = policy_of(policy) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let key = Key::from(percent_decode_str(key).collect::<Vec<u8>>());
    let usage = semaphore.usage(&policy, &key).await;
    answer(usage.map(|usage| usage.to_json()))
}

/// The last segments of the path, still encoded. Axum's own extractors refuse what is not UTF-8.
fn last_segments<const N: usize>(request: &Request) -> [&str; N] {
    let mut segments = [""; N];
    let found = request.uri().path().rsplit('/');
    for (segment, found) in segments.iter_mut().rev().zip(found) {
        *segment = found;
    }
    segments
}

fn policy_of(segment: &str) -> Option<Policy> {
    let policy = percent_decode_str(segment).decode_utf8().ok()?;
    Some(Policy::from(policy.as_ref()))
}

/// The first keys, and whether there are more.
async fn first_keys(mut keys: KeyStream) -> Result<(Vec<StoredKey>, bool), StoreError> {
    let mut found = Vec::new();
    while let Some(key) = poll_fn(|cx| keys.as_mut().poll_next(cx)).await {
        if found.len() == MAX_KEYS {
            return Ok((found, true));
        }
        found.push(key?);
    }
    Ok((found, false))
}

fn keys_json(policy: &Policy, keys: &[StoredKey], more: bool) -> String {
    let list = |name: fn(&StoredKey) -> Option<String>| {
        let names: Vec<_> = keys.iter().filter_map(name).collect();
        names.join(",")
    };
    let whole = list(|key| match key {
        StoredKey::Whole(key) => Some(segment(key.as_bytes())),
        StoredKey::Hashed(_) => None,
    });
    let hashed = list(|key| match key {
        StoredKey::Whole(_) => None,
        StoredKey::Hashed(hash) => Some(segment(hash.as_bytes())),
    });
    let policy = segment(policy.as_bytes());
    format!(r#"{{"policy":{policy},"keys":[{whole}],"hashed":[{hashed}],"more":{more}}}"#)
}

/// A segment of a path as a JSON string. Nothing in it has to be escaped.
fn segment(bytes: &[u8]) -> String {
    format!("\"{}\"", percent_encode(bytes, ENCODED))
}

fn answer(json: Result<String, StoreError>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    match json {
        Ok(json) => (headers, json).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
