//! Routes for operators: who holds what, as JSON.

use crate::semaphore::{Key, KeyPage, Operate, Policy, StoreError, StoredKey};
use axum::{
    Router,
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::{error::Error, sync::Arc, time::Duration};

/// The bytes that are percent-encoded in a query: all except the characters that RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// How long a store looks for keys before the answer is sent.
const PAGE_TIME: Duration = Duration::from_millis(250);

type Operated = Arc<dyn Operate>;

/// Routes that show who holds what. Nest them behind your own authentication: they have none, and they show keys and
/// labels. They change nothing.
///
/// | route | answer |
/// |---|---|
/// | `GET /keys?policy=…&cursor=…` | the keys of a policy that have permits or waiters, or are paused, some at a time |
/// | `GET /usage?policy=…&key=…` | the [usage](crate::semaphore::Usage::to_json) of a key |
///
/// A policy is `concurrency` unless the query names another one. A list is
///
/// ```json
/// {"policy":"concurrency",
///  "keys":[{"key":"ann","usage":"usage?policy=concurrency&key=ann"}],
///  "hashed":["9f86d081…"],
///  "next":"keys?policy=concurrency&cursor=1792%40"}
/// ```
///
/// where `usage` and `next` are links relative to the list's own address. `next` leads to further keys; it is `null` in
/// the last answer. An answer has the keys that the store finds in a quarter of a second, about 1,000 at most. So it
/// may have no keys although `next` is set, and a key may be in two answers. The cursor is the
/// [store's](Operate::keys_page), and any process that uses the same Redis can continue with it.
///
/// A policy is any UTF-8 text, and a key is any bytes. In a query every byte except letters, digits and `-_.~` is
/// percent-encoded, and a space may be a `+`. In an answer keys and the policy are percent-encoded too. `hashed` has
/// the SHA-256 of the keys that the [store](crate::semaphore::StoredKey::Hashed) keeps only as a hash.
///
/// An invalid query is answered with status 400, and a failure of the store with 503. The text of the answer names the
/// parameter or the cause.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use tower_semaphore::{MemorySemaphore, usage_routes};
///
/// let semaphore = MemorySemaphore::builder().holders(true).build();
/// let operators = usage_routes(semaphore.clone()); // .layer(your_authentication)
/// let app: Router = Router::new().nest("/debug/permits", operators);
/// # drop(app);
/// ```
pub fn usage_routes<S: Clone + Send + Sync + 'static>(semaphore: impl Operate) -> Router<S> {
    let semaphore: Operated = Arc::new(semaphore);
    Router::new()
        .route("/keys", get(keys))
        .route("/usage", get(usage))
        .with_state(semaphore)
}

async fn keys(
    State(semaphore): State<Operated>,
    RawQuery(query): RawQuery,
) -> Result<Response, ErrorResponse> {
    let [policy, cursor] = values(query.as_deref(), ["policy", "cursor"])?;
    let policy = policy_of(policy)?;
    let cursor = cursor.map(|cursor| text("cursor", cursor)).transpose()?;
    let page = semaphore
        .keys_page(&policy, cursor.as_deref(), PAGE_TIME)
        .await?;
    let page =
        page.ok_or_else(|| ErrorResponse::query("cursor", "it is not one that an answer had"))?;
    Ok(answer(list(&policy, &page)))
}

async fn usage(
    State(semaphore): State<Operated>,
    RawQuery(query): RawQuery,
) -> Result<Response, ErrorResponse> {
    let [policy, key] = values(query.as_deref(), ["policy", "key"])?;
    let policy = policy_of(policy)?;
    let key = key.ok_or_else(|| ErrorResponse::query("key", "it is missing"))?;
    if key.is_empty() {
        return Err(ErrorResponse::query("key", "it is empty"));
    }
    let usage = semaphore.usage(&policy, &Key::from(key)).await?;
    Ok(answer(usage.to_json()))
}

/// Returns the values of the named parameters. Refuses others, because with a misspelt cursor a list would start from
/// the beginning each time.
fn values<const N: usize>(
    query: Option<&str>,
    names: [&str; N],
) -> Result<[Option<Vec<u8>>; N], ErrorResponse> {
    let mut values = [const { None }; N];
    let parameters = query.unwrap_or_default().split('&');
    for parameter in parameters.filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let Some(at) = names.iter().position(|known| *known == name) else {
            return Err(ErrorResponse::query(
                name,
                "this route has no such parameter",
            ));
        };
        if values[at].replace(decoded(name, value)?).is_some() {
            return Err(ErrorResponse::query(name, "it is there twice"));
        }
    }
    Ok(values)
}

/// Decodes a value that is written as in an HTML form.
fn decoded(name: &str, value: &str) -> Result<Vec<u8>, ErrorResponse> {
    let is_encoded = |rest: &str| {
        let digits = rest.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !value.split('%').skip(1).all(is_encoded) {
        return Err(ErrorResponse::query(
            name,
            "a % is not followed by two hexadecimal digits",
        ));
    }
    let value = value.replace('+', " ");
    Ok(percent_decode(value.as_bytes()).collect())
}

fn policy_of(value: Option<Vec<u8>>) -> Result<Policy, ErrorResponse> {
    match value {
        Some(value) => Ok(Policy::from(text("policy", value)?)),
        None => Ok(Policy::DEFAULT),
    }
}

fn text(name: &str, value: Vec<u8>) -> Result<String, ErrorResponse> {
    String::from_utf8(value).map_err(|_| ErrorResponse::query(name, "it is not UTF-8"))
}

fn list(policy: &Policy, page: &KeyPage) -> String {
    let policy = encoded(policy.as_str().as_bytes());
    let (mut keys, mut hashed) = (Vec::new(), Vec::new());
    for key in &page.keys {
        match key {
            StoredKey::Whole { key } => {
                let key = encoded(key.as_bytes());
                let usage = format!("usage?policy={policy}&key={key}");
                keys.push(format!(r#"{{"key":"{key}","usage":"{usage}"}}"#));
            }
            StoredKey::Hashed { hash } => hashed.push(format!(r#""{}""#, encoded(hash.as_bytes()))),
        }
    }
    let next = page.next.as_ref().map_or("null".to_owned(), |cursor| {
        format!(
            r#""keys?policy={policy}&cursor={}""#,
            encoded(cursor.as_bytes())
        )
    });
    let (keys, hashed) = (keys.join(","), hashed.join(","));
    format!(r#"{{"policy":"{policy}","keys":[{keys}],"hashed":[{hashed}],"next":{next}}}"#)
}

/// Encodes bytes for a query. The result is also a valid part of a JSON string, without escapes.
fn encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, ENCODED).to_string()
}

fn answer(json: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, json).into_response()
}

/// A refusal: its status and its text.
struct ErrorResponse(StatusCode, String);

impl ErrorResponse {
    fn query(parameter: &str, why: &str) -> Self {
        Self(StatusCode::BAD_REQUEST, format!("{parameter}: {why}"))
    }
}

impl From<StoreError> for ErrorResponse {
    fn from(error: StoreError) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let Self(status, text) = self;
        (status, [(header::CACHE_CONTROL, "no-store")], text).into_response()
    }
}
