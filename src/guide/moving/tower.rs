//! Moving from `tower::limit`.
//!
//! | tower | here | what differs |
//! |---|---|---|
//! | `ConcurrencyLimitLayer::new(max)` | [`ConcurrencyLimitLayer::new(max, key, store)`](crate::ConcurrencyLimitLayer::new) | tower: one limit for each service that the layer makes. Here: one for each key, shared by all services of a store and policy |
//! | `GlobalConcurrencyLimitLayer::new(max)` | [`GlobalConcurrencyLimitLayer::new(max, key, store)`](crate::GlobalConcurrencyLimitLayer::new) | over Redis one limit for all processes |
//! | `GlobalConcurrencyLimitLayer::with_semaphore(semaphore)` | two layers with clones of one store, and the same key and policy | |
//! | a permit ends with the response future, so at the head | at the end of the body; [`ReleaseAt::Head`](crate::ReleaseAt) for tower's way | streams count while they stream |
//! | `poll_ready` waits without bound | [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) is ready and refuses; [`GlobalConcurrencyLimitLayer`](crate::GlobalConcurrencyLimitLayer) waits in `poll_ready`, without bound unless [`with_wait`](crate::GlobalConcurrencyLimitLayer::with_wait) is set | |
//! | `load_shed` around it refuses with an error | no such layer needed: a refusal is a response, and with [`LimitLayer`](crate::LimitLayer) an error | |
//! | any request and response types | [`LimitLayer`](crate::LimitLayer); the other layers take those of the crate `http`, with bodies of `Bytes` | |
//! | a max of 0 is never ready | a limit of 0 refuses each call | |
//!
//! Before, for all accounts together, in this process, to the head:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower::limit::GlobalConcurrencyLimitLayer;
//!
//! let limit = GlobalConcurrencyLimitLayer::new(100);
//! let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! # drop(app);
//! ```
//!
//! After, the same limit to the end of the body. Requests without room wait for up to 10 s instead of without bound:
//!
//! ```
//! use axum::{Router, routing::get};
//! use std::time::Duration;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! let limit = ConcurrencyLimitLayer::new(100, key::fixed("all"), MemorySemaphore::new())
//!     .with_wait(Duration::from_secs(10));
//! let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! # drop(app);
//! ```
//!
//! For a *server* a keyed layer with [`key::fixed`](crate::key::fixed) is the better replacement, because a refusal is
//! an answer. For a *client* take the global layer: backpressure is what `buffer`, balancers and `ready` expect. It
//! gives back a permit that is not used within three to four seconds, so a service that is kept idle holds nothing.
//!
//! `ConcurrencyLimitLayer` costs more than tower's counter: an axum app that does nothing else kept 0.987 of its
//! throughput with tower's limit, and 0.919 with `ConcurrencyLimitLayer` in memory (BENCHMARKS.md, "HTTP").
