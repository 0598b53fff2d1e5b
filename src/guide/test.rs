//! Test your service: paused time, a store that is down or full, a handler that takes its permit.
//!
//! A test needs no Redis for this: [`MemorySemaphore`](crate::MemorySemaphore) gives the answers that the store in
//! Redis gives, and a layer takes any store. Requests are sent with tower's `oneshot`, which needs
//! `cargo add tower --dev --features util`. Each example is the body of a `#[tokio::test]`.
//!
//! # A limit that is reached
//!
//! A response that is not read to its end holds its permit, so keep the first to see the second refused:
//!
//! ```
//! use axum::{Router, body::Body, http::{Request, StatusCode}, routing::get};
//! use tower::ServiceExt;
//! use tower_semaphore::{AcquireError, ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::header("x-account-id"), MemorySemaphore::new());
//! let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! let export = || {
//!     let request = Request::get("/export").header("x-account-id", "ann").body(Body::empty());
//!     app.clone().oneshot(request.unwrap())
//! };
//!
//! let first = export().await.unwrap();
//! let second = export().await.unwrap();
//! assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(second.headers()["retry-after"], "1");
//! assert_eq!(second.headers()["ratelimit-policy"], r#""concurrency";q=1;qu="concurrent-requests""#);
//! // The reason as a value: your layers outside of the limit can read it in the same way.
//! let reason = second.extensions().get::<AcquireError>();
//! assert!(matches!(reason, Some(AcquireError::Full { limit: 1, held: 1, .. })));
//!
//! drop(first);
//! assert_eq!(export().await.unwrap().status(), StatusCode::OK);
//! # }
//! ```
//!
//! # A suite whose requests name no account
//!
//! When a service gets its first limit, requests of older tests that name no account get 400. Let the suite's app add a
//! new account to each request, so that no test meets the limit by chance:
//!
//! ```
//! use axum::{Router, body::Body, extract::Request, middleware::map_request, routing::get};
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use tower::ServiceExt;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! async fn with_account(mut request: Request) -> Request {
//!     static NEXT: AtomicU32 = AtomicU32::new(0);
//!     let account = request.headers_mut().entry("x-account-id");
//!     account.or_insert_with(|| NEXT.fetch_add(1, Ordering::Relaxed).into());
//!     request
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::header("x-account-id"), MemorySemaphore::new());
//! let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! let app = app.layer(map_request(with_account)); // in tests only
//!
//! let export = || app.clone().oneshot(Request::get("/export").body(Body::empty()).unwrap());
//! let held = export().await.unwrap();
//! assert_eq!([held.status(), export().await.unwrap().status()], [200, 200]);
//! # }
//! ```
//!
//! # A store that is full
//!
//! The test is a client of the store, like the layer: units that the test holds are not free for a request. The claim
//! names the key as the extractor does, and the policy if the layer sets one.
//!
//! ```
//! # use axum::{Router, body::Body, http::Request, routing::get};
//! # use tower::ServiceExt;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, Semaphore, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = MemorySemaphore::new();
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), store.clone());
//! # let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! # let export = || {
//! #     let request = Request::get("/export").header("x-account-id", "ann").body(Body::empty());
//! #     app.clone().oneshot(request.unwrap())
//! # };
//! let all = store.acquire(Claim::new("ann").with_limit(5).with_weight(5)).await.unwrap();
//! assert_eq!(export().await.unwrap().status(), 429);
//!
//! all.release().await;
//! assert_eq!(export().await.unwrap().status(), 200);
//! # }
//! ```
//!
//! # A store that is down
//!
//! A store is one function, so a store that fails takes three lines. Any other [`AcquireError`](crate::AcquireError)
//! can be used, or a future that never answers.
//!
//! ```
//! # use axum::{Router, body::Body, http::Request, routing::get};
//! # use tower::ServiceExt;
//! use tower_semaphore::{Acquire, Claims, ConcurrencyLimitLayer, Semaphore, key, semaphore::StoreError};
//!
//! struct Down;
//! impl Semaphore for Down {
//!     fn acquire_all(&self, _: Claims) -> Acquire { Acquire::ready(Err(StoreError::new("it is down").into())) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), Down);
//! # let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! # let export = || {
//! #     let request = Request::get("/export").header("x-account-id", "ann").body(Body::empty());
//! #     app.clone().oneshot(request.unwrap())
//! # };
//! let answer = export().await.unwrap();
//! assert_eq!(answer.status(), 503);
//! assert!(answer.headers().contains_key("retry-after"));
//! # }
//! ```
//!
//! # Paused time
//!
//! All time in memory is Tokio's: waits, holds, stalls, head starts, `Retry-After` and what an operator is shown. So under
//! `#[tokio::test(start_paused = true)]`, with Tokio's feature `test-util`, an hour takes no time. Over Redis do not pause
//! it: answers of a server take time that Tokio's clock does not count.
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::{Instant, advance};
//! use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let store = MemorySemaphore::new();
//! let hour = Duration::from_secs(3_600);
//! let claim = Claim::new("ann").with_limit(1).with_wait(hour);
//!
//! let held = store.acquire(claim.clone()).await.unwrap();
//! let start = Instant::now();
//! assert!(matches!(store.acquire(claim.clone()).await, Err(AcquireError::TimedOut { .. })));
//! assert!(start.elapsed() >= hour, "the paused clock has advanced by itself");
//!
//! // `with_max_hold` of a layer ends a permit in the same way.
//! held.end_after(hour / 2);
//! assert!(!held.is_lost());
//! assert!(store.acquire(claim).await.is_ok(), "within the hour");
//! assert!(held.is_lost());
//! # }
//! ```
//!
//! When all tasks wait, a paused clock advances by itself to the next moment for which a task waits. `advance` moves it
//! in between.
//!
//! # A handler that takes its permit
//!
//! A [`Permit`](crate::Permit) always comes from a store, also in a test. So acquire a permit, and call the handler
//! with it. To see what the handler does when the permit is lost, end it:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use std::time::Duration;
//! use tower_semaphore::{Claim, MemorySemaphore, Permit, Semaphore};
//!
//! async fn export(permit: Permit) -> String {
//!     tokio::select! {
//!         () = permit.lost() => "cut".to_owned(),
//!         () = tokio::time::sleep(Duration::from_secs(60)) => format!("rows, {} left", permit.remaining()),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let permit = MemorySemaphore::new().acquire(Claim::new("ann").with_limit(5)).await.unwrap();
//! assert_eq!(export(permit.clone()).await, "rows, 4 left");
//!
//! permit.end_after(Duration::ZERO);
//! assert_eq!(export(permit).await, "cut");
//! # }
//! # }
//! ```
//!
//! Through a router this is not needed: the layer leaves the permit in the request's extensions. To call a route
//! without the layer, put one there: `request.extensions_mut().insert(permit)`.
//!
//! # With a real Redis
//!
//! Start a server on a separate port for a test, as this crate's tests do, or give each test a
//! [prefix](crate::redis::Builder::prefix) on a shared one. Send commands to it to see what a failure looks like:
//! `CLIENT PAUSE 1000` for a server that hangs, `CLIENT KILL TYPE normal` for connections that break.
