//! The responses that clients see, and how they should handle them.
//!
//! # An admitted response
//!
//! An admitted response has two fields of the [RateLimit draft], which is not a standard yet:
//!
//! ```text
//! RateLimit-Policy: "concurrency";q=5;qu="concurrent-requests"
//! RateLimit: "concurrency";r=2
//! ```
//!
//! The policy allows 5 requests at a time, and 2 more were free when this one was admitted. With several limits, each
//! limit has a separate item. The fields have no `w`, because the limit has no window. The fields of a
//! [budget](super::budgets) have it, and no `qu`. A client that wants to stay within its limit sends at most *r* more
//! requests beside those in flight.
//!
//! For the client a request is over when it has read the end of the response. It may then send the next request to
//! another process. So over Redis the head of a response waits at most 2 ms for the answer to the permit's release. It
//! waits only if the key was full within the last ten seconds and the body ends in its first frame. A Redis nearby
//! answers within a fraction of a millisecond. So the permit is free before the client sees the response.
//!
//! A race remains for other bodies, such as streams and unary gRPC responses, which end after their first frame. Their
//! release is sent at once when the body ends, but the next claim travels over another connection. A second race
//! remains if Redis takes more than 2 ms, and a third while a key fills for the first time: a process learns only from
//! its own answers that the key is full. Of 2,500 requests by five loops without a pause, three were refused
//! (BENCHMARKS.md, `benches/turns`). Give such claims a [short wait](crate::ConcurrencyLimitLayer::with_wait), which
//! outlasts the race, or let clients retry once.
//!
//! [RateLimit draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
//!
//! ## Two services in a chain
//!
//! A gateway that forwards the response of a service also forwards its RateLimit fields. If both have a limit named
//! `concurrency`, a client reads two limits with one name. So give each limit a
//! [policy](crate::ConcurrencyLimitLayer::with_policy), named after the resource that it protects:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = |limit, policy| {
//!     ConcurrencyLimitLayer::new(limit, key::header("x-account-id"), MemorySemaphore::new()).with_policy(policy)
//! };
//! let service: Router = Router::new().route("/", get(|| async { "items" })).layer(limit(5, "search"));
//! let gateway = service.layer(limit(50, "gateway")); // as over a network
//!
//! let request = Request::get("/").header("x-account-id", "ann").body(Body::empty()).unwrap();
//! let response = gateway.oneshot(request).await.unwrap();
//! let fields: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
//! assert_eq!(fields, [r#""search";r=4"#, r#""gateway";r=49"#]);
//! # }
//! ```
//!
//! # A refusal
//!
//! | what happened | status | problem type | gRPC status | retry? |
//! |---|---|---|---|---|
//! | an operator has [closed the key](crate::Operate::set_limit) | 403 | `about:blank` | 7 `PERMISSION_DENIED` | no |
//! | limit reached, queue full, wait over, wait ended by an operator | 429 | `quota-exceeded` | 8 `RESOURCE_EXHAUSTED` | after `Retry-After` |
//! | the key is [paused](super::pauses) | 429 | `quota-exceeded` | 8 `RESOURCE_EXHAUSTED` | after `Retry-After`, the rest of the pause |
//! | the store failed, is overloaded or shut down | 503 | `temporary-reduced-capacity` | 14 `UNAVAILABLE` | after `Retry-After` |
//! | no key, or an invalid one | 400 | `about:blank` | 3 `INVALID_ARGUMENT` | no |
//! | the service has not provided the key's extension | 500 | `about:blank` | 13 `INTERNAL` | no |
//! | the claim is heavier than the limit | 400 | `about:blank` | 3 `INVALID_ARGUMENT` | no |
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! Content-Type: application/problem+json
//! Retry-After: 1
//! RateLimit-Policy: "concurrency";q=5;qu="concurrent-requests"
//! RateLimit: "concurrency";r=0;t=1
//!
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//!  "title":"Too many requests in flight","status":429,
//!  "violated-policies":["concurrency"]}
//! ```
//!
//! The body is a problem of RFC 9457, in one line. `violated-policies` names the limit that refused, and no account.
//! `t` and `Retry-After` are the same number of seconds. [`Rejection`](crate::Rejection) has all the details, and
//! [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection) makes another response:
//!
//! ```
//! use axum::{http::StatusCode, response::IntoResponse};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Reason, key};
//!
//! let layer = ConcurrencyLimitLayer::new(5, key::header("x-api-key"), MemorySemaphore::new())
//!     .with_rejection(|rejection| match rejection.reason() {
//!         Reason::Key { .. } => (StatusCode::UNAUTHORIZED, "which key?").into_response(),
//!         _ => rejection.into_response().into_response(),
//!     });
//! # drop(layer);
//! ```
//!
//! To change only the body, `map` the usual response. It then keeps its status and all fields. Leave the empty body of
//! a gRPC refusal as it is.
//!
//! ```
//! use axum::{Router, body::{Body, to_bytes}, http::{HeaderValue, Request, Response, header::CONTENT_TYPE}, routing::get};
//! use tower::ServiceExt;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Rejection, key};
//!
//! fn busy(rejection: Rejection) -> Response<String> {
//!     let policy = rejection.policy().to_string();
//!     let seconds = rejection.retry_after().map_or(0, |time| time.as_secs());
//!     let usual = rejection.into_response();
//!     if usual.body().is_empty() {
//!         return usual; // gRPC
//!     }
//!     let status = usual.status().as_u16();
//!     let mut response =
//!         usual.map(|_| format!(r#"{{"code":{status},"limit":"{policy}","retry_in":{seconds}}}"#));
//!     response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
//!     response
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::header("x-account-id"), MemorySemaphore::new())
//!     .with_rejection(busy);
//! let app: Router = Router::new().route("/", get(|| async { "items" })).layer(limit);
//! let send = || {
//!     let request = Request::get("/").header("x-account-id", "ann").body(Body::empty());
//!     app.clone().oneshot(request.unwrap())
//! };
//!
//! let held = send().await.unwrap();
//! let refused = send().await.unwrap();
//! assert_eq!(refused.status(), 429);
//! let seconds = refused.headers()["retry-after"].to_str().unwrap().to_owned();
//! assert_eq!(refused.headers()["ratelimit"], format!(r#""concurrency";r=0;t={seconds}"#));
//! let body = to_bytes(refused.into_body(), 1_000).await.unwrap();
//! assert_eq!(body, format!(r#"{{"code":429,"limit":"concurrency","retry_in":{seconds}}}"#));
//! # drop(held);
//! # }
//! ```
//!
//! A layer outside of the limit finds the reason in the response's extensions, as an
//! [`AcquireError`](crate::AcquireError), a [`KeyError`](crate::KeyError) or a [`PermitLost`](crate::PermitLost). So it
//! can distinguish this limit's 429 from a handler's:
//!
//! ```
//! use axum::response::Response;
//! use tower_semaphore::AcquireError;
//!
//! fn was_refused_here(response: &Response) -> bool {
//!     response.extensions().get::<AcquireError>().is_some_and(AcquireError::is_refusal)
//! }
//! # drop(was_refused_here);
//! ```
//!
//! # Retries
//!
//! - **A refusal is safe to retry, whatever the method.** The handler has not seen the request, so a refused POST has
//!   done nothing. This applies to the responses in the table. Recognise them by the problem type or the gRPC status,
//!   because a 503 from a proxy in front may mean something else.
//! - **Wait for `Retry-After`.** It is computed from how long permits are held. Clients that are refused together get
//!   different times, so that they return as places become free: [the rule]. Of 50 clients under a limit of 10 with
//!   holds of about 1 s, 89 % got in at their first return. With a constant `Retry-After` of 1 s, 16 % did
//!   (BENCHMARKS.md, "When to come back").
//! - **Prefer to wait in the queue.** If clients would retry within seconds anyway,
//!   [`with_wait`](crate::ConcurrencyLimitLayer::with_wait) serves them in order and with one request each. In a
//!   comparison, 50 clients that waited sent 50 requests. With a retry every 10 ms they sent 1,645 to 1,682
//!   (BENCHMARKS.md, "Peers").
//! - **A response that breaks off** was admitted, and its handler has begun its work. Retry only idempotent requests.
//!   Under [`OnLost::Abort`](crate::OnLost) a response also breaks off if its permit is lost after the head, unless [a
//!   proxy makes it look whole](super::proxies#responses-that-are-cut). If the permit is lost before the head, the
//!   client gets 503 with `Retry-After` and the type `about:blank`, unlike the 503 for a store that failed.
//! - **400 is a mistake** of the client, **500** a mistake of the service. A retry does not help with either.
//!
//! [the rule]: crate::Rejection#when-to-try-again
//!
//! The client's side in Rust, for any HTTP library that uses the crate `http`:
//!
//! ```
//! use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
//! use std::time::Duration;
//!
//! /// How long to wait before the same request is sent again, if that makes sense.
//! fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
//!     let may_retry = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
//!     let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
//!     may_retry.then(|| Duration::from_secs(seconds))
//! }
//!
//! let headers = HeaderMap::from_iter([(RETRY_AFTER, 2.into())]);
//! assert_eq!(retry_after(StatusCode::TOO_MANY_REQUESTS, &headers), Some(Duration::from_secs(2)));
//! assert_eq!(retry_after(StatusCode::BAD_REQUEST, &headers), None);
//! ```
//!
//! # gRPC
//!
//! A refused gRPC call gets HTTP status 200 and its `grpc-status` in the head, without a body (*Trailers-Only*).
//! `Retry-After` and the RateLimit fields are in the head too; a generated client sees them as metadata of the status.
//!
//! - A refused call was not processed, so it is safe to retry too. A client does so if the `retryPolicy` of its service
//!   config names the status. `UNAVAILABLE` is customary in `retryableStatusCodes`; add `RESOURCE_EXHAUSTED` if a call
//!   should wait until the limit has room. The client then waits for `grpc-retry-pushback-ms`, which is `Retry-After`
//!   in milliseconds.
//! - tonic retries nothing by itself. Its client finds `retry-after` in the status's metadata.
//! - Under [`OnLost::Abort`](crate::OnLost) a call whose permit is lost ends with 14 and the message `the permit was
//!   lost`, in trailers if it streams. It has begun, so retry it only if it is idempotent.
//!
//! [`Rejection`](crate::Rejection#grpc) describes the same for gRPC-Web, and for keys that are credentials. The example
//! `grpc` has a server and a client of tonic.
//!
//! # While a client waits
//!
//! A request in the queue has no response yet. It leaves the queue when the server notices that its client has hung up,
//! which [proxies can hide](super::proxies#clients-that-hang-up). A proxy sees only silence, so the wait must be
//! shorter than [its timeout](super::proxies#waits). For longer waits, admit the request and wait inside the handler,
//! which may send bytes during the wait: [a recipe](super::recipes::streams#bytes-to-a-client-that-waits).
