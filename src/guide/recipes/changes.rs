//! Limits that change while they are in use.
//!
//! # For the whole fleet, by an operator
//!
//! [`Operate::set_limit`](crate::Operate::set_limit) sets the limit of a key, or of all keys of a policy that have no
//! separate limit. It takes precedence over the limits of claims until it is changed or removed. Over Redis it is in
//! force in every process, also in processes that start later.
//!
//! ```
//! use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Operate, Policy, Semaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = MemorySemaphore::new();
//! let (policy, ann) = (Policy::DEFAULT, "ann".into());
//! let claim = Claim::new("ann").with_limit(5);
//!
//! store.set_limit(&policy, Some(&ann), Some(1), "bob: she leaks streams, until Monday").await.unwrap();
//! let first = store.acquire(claim.clone()).await.unwrap();
//! assert!(store.acquire(claim.clone()).await.is_err());
//!
//! store.set_limit(&policy, Some(&ann), Some(0), "").await.unwrap();
//! let closed = store.acquire(claim.clone()).await;
//! assert!(matches!(closed, Err(AcquireError::KeyClosed { .. })));
//! assert!(!first.is_lost());
//!
//! store.set_limit(&policy, Some(&ann), None, "").await.unwrap();
//! assert!(store.acquire(claim).await.is_ok());
//! # }
//! ```
//!
//! - When the future is ready, the limit is in force in the process that set it. Over Redis the other processes read it
//!   with their heartbeat, which they send three times in a lease and at least every 5 s. This needs no additional
//!   command.
//! - Claims that wait follow it and keep their places. In a fair queue they get new turns. Processes learn of a change
//!   one after the other. Until all know it, claims of the informed processes may pass the others.
//! - A claim of a limit of 0, or heavier than its own limit, is a mistake of the service, whatever operators set.
//! - While Redis is away the limits that were known stay in force, also in
//!   [shares](crate::redis::WhenUnavailable::Share). A server that loses its data loses them, and each process logs
//!   that once. On a cluster all limits are one key on one node.
//! - An application's user in Redis [need not be allowed](super::super::deploy) to set limits, only to read them.
//!
//! # In one process, by its own configuration
//!
//! A limit is also a value of each claim, so an extractor that reads a value for each request can follow its changes.
//! Here a task sends the limit over a `watch` channel:
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
//! - A lowered limit ends no permit, and grants nothing until it has room.
//! - Processes that learn of a change at different times do no harm: each claim is granted under its own limit.
//! - An `AtomicU32`, or an `ArcSwap` of a whole table of tiers, is read in the same way. Reading has to be quick,
//!   because it happens in the call of the service.
//!
//! [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer#limits-that-change) has the details.
