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
//! - Claims that wait follow the new limit and keep their places. In a fair queue they get new turns. Processes learn
//!   of a change one after the other. Until all know it, claims of the informed processes may pass the others.
//! - A claim with a limit of 0 is refused as full, and a claim with a weight above its own limit as invalid. No limit of
//!   an operator changes that.
//! - While Redis is away the limits that were known stay in force, also in
//!   [shares](crate::redis::WhenUnavailable::Share). A server that loses its data loses them, and each process logs
//!   that once. On a cluster one node has all limits, in one Redis key.
//! - An application's user in Redis [need not be allowed](super::super::deploy) to set limits, only to read them.
//!
//! # For the whole fleet, by the load
//!
//! The right limit of an upstream is often unknown, and changes. So raise it by one while the upstream answers in time,
//! and multiply it by 0.9 after an overload (AIMD: additive increase, multiplicative decrease). One process decides,
//! the holder of a [`Lock`](crate::Lock), and [`set_limit`](crate::Operate::set_limit) applies its decision in all
//! processes:
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}}, time::Duration};
//! use tokio::time::sleep;
//! use tower_semaphore::{Key, Lock, MemorySemaphore, Operate, Policy, semaphore::StoreError};
//!
//! const UPSTREAM: &str = "upstream-1";
//!
//! fn next_limit(limit: u32, in_flight: u32, is_overloaded: bool) -> u32 {
//!     if is_overloaded {
//!         (limit * 9 / 10).max(1)
//!     } else if in_flight * 2 > limit {
//!         (limit + 1).min(200)
//!     } else {
//!         limit // hardly used, so a higher one would be a guess
//!     }
//! }
//!
//! /// `overloads` is the number of responses that were slow, or had status 429 or 503. The callers count them.
//! async fn adapt(store: &MemorySemaphore, overloads: &AtomicU32) -> Result<(), StoreError> {
//!     let (policy, key) = (Policy::DEFAULT, Key::from(UPSTREAM));
//!     loop {
//!         sleep(Duration::from_secs(5)).await;
//!         let usage = store.usage(&policy, &key).await?;
//!         let limit = usage.limit.unwrap_or(20);
//!         let next = next_limit(limit, usage.units, overloads.swap(0, Relaxed) > 0);
//!         if next != limit && limit > 0 { // an operator closes the upstream with 0
//!             store.set_limit(&policy, Some(&key), Some(next), "AIMD").await?;
//!         }
//!     }
//! }
//!
//! async fn lead(store: MemorySemaphore, overloads: Arc<AtomicU32>) {
//!     let lock = Lock::new(store.clone(), UPSTREAM);
//!     loop {
//!         if let Ok(guard) = lock.acquire(Duration::from_secs(600)).await {
//!             tokio::select! {
//!                 _ = adapt(&store, &overloads) => {} // the store has failed
//!                 () = guard.lost() => {}
//!             }
//!         }
//!         sleep(Duration::from_secs(1)).await;
//!     }
//! }
//! #
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! # use tower_semaphore::{Claim, Semaphore};
//! # let store = MemorySemaphore::builder().holders(true).build();
//! # let overloads = Arc::new(AtomicU32::new(0));
//! # for _process in 0..2 {
//! #     tokio::spawn(lead(store.clone(), Arc::clone(&overloads)));
//! # }
//! # let limit = async || store.usage(&Policy::DEFAULT, &UPSTREAM.into()).await.unwrap().limit;
//! # let busy = store.acquire(Claim::new(UPSTREAM).with_limit(20).with_weight(20)).await.unwrap();
//! # sleep(Duration::from_millis(5_500)).await;
//! # assert_eq!(limit().await, Some(21), "one of the two has raised it, once");
//! # overloads.fetch_add(1, Relaxed);
//! # sleep(Duration::from_secs(5)).await;
//! # assert_eq!(limit().await, Some(18));
//! # let lock = store.usage(&"lock".into(), &UPSTREAM.into()).await.unwrap();
//! # assert!(store.revoke(&"lock".into(), &UPSTREAM.into(), &lock.held[0].id).await.unwrap());
//! # sleep(Duration::from_millis(5_500)).await;
//! # assert_eq!(limit().await, Some(19), "only the other one goes on");
//! # drop(busy);
//! # }
//! ```
//!
//! - The store renews the lock for as long as the guard lives. A leader whose lock is lost stops at once, and another
//!   process goes on from the limit in force.
//! - The leader counts its own overloads. If it sends few of the requests, let all processes report theirs, for example
//!   to a counter in Redis.
//! - Only a limit that is at least half used is raised, so a quiet night does not raise it to the maximum.
//! - Without a leader the last limit stays in force. `set_limit` with `None` removes it.
//! - If an operator sets the limit, the leader's next step starts from it. A limit of 0 stays until an operator raises
//!   it.
//! - In Redis the application's user needs the [rights](super::super::deploy) for `usage` and `set_limit`.
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
