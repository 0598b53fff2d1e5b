//! Limits that change while they are in use.
//!
//! A limit is a value of each claim, not of the store, so an extractor that reads it anew for each request follows
//! it. Here an operator's task sends it over a `watch` channel:
//!
//! ```
//! use axum::{Router, body::Body, http::{Request, request::Parts}, routing::get};
//! use tokio::sync::watch;
//! use tower::ServiceExt;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let (operator, limit) = watch::channel(1);
//! let claim = move |parts: &Parts| -> Result<Claim, KeyError> {
//!     let account = parts.headers.get("x-account-id").ok_or("no account")?;
//!     Ok(Claim::new(account).with_limit(*limit.borrow()))
//! };
//! let layer = ConcurrencyLimitLayer::new(1, claim, MemorySemaphore::new());
//! let app: Router = Router::new().route("/", get(|| async { "items" })).layer(layer);
//! let send = || {
//!     let request = Request::get("/").header("x-account-id", "ann").body(Body::empty());
//!     app.clone().oneshot(request.unwrap())
//! };
//!
//! let first = send().await.unwrap();
//! assert_eq!(send().await.unwrap().status(), 429);
//! operator.send_replace(2);
//! assert_eq!(send().await.unwrap().status(), 200);
//! # drop(first);
//! # }
//! ```
//!
//! - A raised limit counts from the next request on, for a key without a queue. Claims that wait keep the limit that they
//!   came with, and later ones stand behind them: keep waits short where limits change often.
//! - A lowered limit ends no permit, and grants nothing until there is room.
//! - Processes that learn of a change at different times do no harm: each claim is granted under its own limit.
//! - An `AtomicU32`, or an `ArcSwap` of a whole table of tiers, is read in the same way. Reading has to be quick,
//!   because it happens in the call of the service.
//!
//! A layer for a fixed key takes a function instead of a number, and a service that waits claims again under the new
//! limit:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}};
//! use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
//!
//! let limit = Arc::new(AtomicU32::new(3));
//! let live = Arc::clone(&limit);
//! let layer = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new())
//!     .with_live_limit(move || live.load(Relaxed));
//! limit.store(5, Relaxed);
//! # drop(layer);
//! ```
//!
//! [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer#limits-that-change) and
//! [`with_live_limit`](crate::GlobalConcurrencyLimitLayer::with_live_limit) have the details.
