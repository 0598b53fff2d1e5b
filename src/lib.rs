#![cfg_attr(docsrs, feature(doc_cfg))]
//! Fair counting semaphores for Tower services: one per key, in one process or across a fleet.
//!
//! If one account with forty open streams can slow an API down for everybody else, the API needs a limit. The limit
//! should know accounts, last as long as the response's *body*, and count on all machines together.
//! [`ConcurrencyLimitLayer`] finds the account in the request, acquires a permit from that account's semaphore, and
//! releases the permit when the body has ended, whatever happens. The semaphores are in memory ([`MemorySemaphore`]) or
//! in Redis ([`RedisSemaphore`]), where a permit is a lease that a background thread, the keeper, refreshes. Claims
//! that find no room are refused, or wait in a queue that is first come, first served across all processes.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! let semaphore = MemorySemaphore::new(); // or RedisSemaphore::connect("redis://…").await?
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), semaphore);
//! let app: Router = Router::new().route("/market", get(|| async { "items" })).layer(limit);
//! # drop(app);
//! ```
//!
//! The [guide] goes on from here: how to choose a limit, deploy Redis and operate all this, with recipes for
//! servers, streams, clients and jobs.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | [key](Key) | what a limit is for: an account, a host, a route |
//! | [policy](Policy) | the name of the rule under which permits are counted |
//! | [claim](Claim) | what one request claims: a key, a policy, a limit, a weight, how long to wait |
//! | [store](Semaphore) | has one counting semaphore for each policy and key |
//! | [permit](Permit) | one grant of a claim: the claim's weight in units of the limit |
//! | lease | how long a permit in Redis lasts without a refresh |
//! | queue, waiter | the claims that wait for a key, and one of them |
//! | budget | a limit of units per window of time; units that a claim takes come back with time |
//! | token | a number that grows with each permit of a key |
//! | lost | a permit whose lease has ended while its holder still runs |
//! | degraded | a permit that goes on without Redis, because the store is set to allow that |
//!
//! # Questions
//!
//! **What if the client is gone?** The server drops the response's body, and with it the permit. A request that waits
//! leaves the queue. To a server, a client that stays connected and stops reading looks like a slow one;
//! [`with_max_stall`](ConcurrencyLimitLayer::with_max_stall) ends the permit of such a client, and
//! [`with_max_hold`](ConcurrencyLimitLayer::with_max_hold) ends the permit of any client.
//!
//! **When does a refused client come back?** After the seconds of `Retry-After`, which come from how long permits are
//! held; clients that are refused together get different times. See [the rule](Rejection#when-to-try-again).
//!
//! **How do I try a limit before it is in force?** With [`with_shadow`](ConcurrencyLimitLayer::with_shadow):
//! every request is admitted, and what would have been refused is counted.
//!
//! **What if a process is killed?** Its permits end with their leases, 10 s by default; its
//! waiters count as dead within a quarter of a lease with the default settings.
//!
//! **What if Redis is down?** A new request is refused with status 503 within half a second, never with "limit
//! reached"; a request in the queue within a second and a half, with the default settings. Permits that are held stay
//! valid until their leases end. Then each is reported lost, by this process's own clock if Redis cannot be reached.
//! When Redis is back, a lost permit whose holder still runs is granted again if the limit has room and no claim waits.
//! That is the default; [`Builder::when_unavailable`][when_unavailable] can admit requests during an outage, all of
//! them or this process's share of the limit, and a handler sees that its permit [is degraded](Permit::is_degraded).
//!
//! **What if clocks differ?** Nothing happens. Leases are measured by the server's clock; a process uses
//! its own only to measure how much time has passed.
//!
//! **What if the script cache is flushed?** The store sends the script's source again.
//!
//! **What is not promised?** A lease does not bound work that runs. Each of these events can admit up to a whole limit
//! of further requests: a process that is paused for longer than its lease, a failover to a replica that lacks the last
//! grants (unless [`Builder::min_replicas`][min_replicas] is set), a flush, an eviction, or a server's clock that jumps
//! forward. A resource that must not suffer from that can refuse each [`Permit::token`] that is lower than the highest
//! one so far. [`OnLost::Abort`] ends a request that has lost its permit.
//!
//! **Who holds what?** [`Operate::usage`] lists the permits of a key and the claims that wait, with their processes and
//! [labels](Claim::with_label); [`Operate::revoke`] takes a permit back, and notifies its holder of the loss.
//!
//! **How do I keep a WebSocket's permit?** The layer puts a clone of the [`Permit`] into the request's extensions. Move
//! that clone into the task of the socket, because the body of the upgrade response ends at once. Under several limits
//! this one permit stands for all of them. See [the recipe][websockets]; [`ConcurrencyLimitLayer`] describes how such a
//! socket ends.
//!
//! **How do I limit tokens or requests per minute?** With a budget: a claim with a
//! [window](Claim::with_window), beside limits of requests in flight. Both stores have budgets.
//!
//! **Does it work with gRPC?** Yes, in a server of tonic and around its channels. A refused client gets
//! a status, and a stream holds its permit to its trailers. See [`ConcurrencyLimitLayer`].
//!
//! **What if an upstream answers with `Retry-After`?** Around a client,
//! [`with_cooldown`](ConcurrencyLimitLayer::with_cooldown) pauses the upstream's key in all processes for that time.
//! Requests that wait keep their places.
//!
//! **What if my service is not HTTP, or refusals should be errors?** Use [`LimitLayer`], which limits services of any
//! request type: a stack of tower, a generated client, a database. A handler that acquires a permit itself keeps it
//! until its response's body ends with [`hold`], and refuses as the layers do with [`Rejection::of`].
//!
//! **Does it need a Tokio runtime?** The store in Redis does. The store in memory needs one only
//! for claims that wait, for [`with_max_hold`](ConcurrencyLimitLayer::with_max_hold), for
//! [`with_max_stall`](ConcurrencyLimitLayer::with_max_stall) and for
//! [`with_cooldown`](ConcurrencyLimitLayer::with_cooldown).
//!
//! # Features
//!
//! - `redis` (default): [`RedisSemaphore`], over TCP or a Unix socket. Without default features
//!   [`MemorySemaphore`] remains.
//! - `tls-rustls`: `rediss://` URLs, through rustls. Enables `redis`.
//! - `tls-native-tls`: `rediss://` URLs, through the platform's TLS library. On Linux that is
//!   OpenSSL, and a build needs its headers and `pkg-config`. Enables `redis`.
//! - `axum`: [`key::peer_ip`] reads axum's `ConnectInfo`, a handler may extract its [`Permit`], and
//!   [`usage_routes`] shows operators who holds what.
//! - `tonic`: [`key::peer_ip`] reads the peer's address in a server of tonic 0.14.
//! - `uuid`: a `uuid::Uuid` converts into a [`Key`].
//! - `metrics`: numbers for a metrics recorder. [`observe`] has a table of them.
//! - `tracing`: a span for each wait, and events of refusals, losses and outages. [`observe`] has an
//!   example of each.
//!
// Links to a feature's items go to this crate, or to docs.rs without the feature: `docs_rs.md` is last, because
// Markdown takes the first definition of a link.
#![cfg_attr(feature = "redis", doc = include_str!("guide/links/redis.md"))]
#![cfg_attr(feature = "axum", doc = include_str!("guide/links/axum.md"))]
#![doc = include_str!("guide/links/docs_rs.md")]

mod admission;
mod background;
mod body;
#[cfg(feature = "axum")]
mod extract;
mod fields;
mod future;
pub mod global;
// Documentation only. Its links need the feature `redis`, its examples also `axum`.
#[cfg(all(
    feature = "redis",
    any(all(doc, not(doctest)), all(doctest, feature = "axum"))
))]
pub mod guide;
mod json;
pub mod key;
mod layer;
pub mod limit;
pub mod lock;
pub mod memory;
mod nesting;
pub mod observe;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis;
mod reject;
mod retry;
pub mod semaphore;
mod service;
mod settings;
mod shadow;
mod sync;
mod timer;
#[cfg(feature = "axum")]
mod usage_routes;

pub use body::{RequestBody, ResponseBody, hold};
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use extract::MissingPermit;
pub use future::ResponseFuture;
#[doc(inline)]
pub use global::{GlobalConcurrencyLimit, GlobalConcurrencyLimitLayer};
#[doc(inline)]
pub use key::{KeyError, KeyExtractor};
pub use layer::ConcurrencyLimitLayer;
#[doc(inline)]
pub use limit::LimitLayer;
#[doc(inline)]
pub use lock::{Lock, LockGuard};
#[doc(inline)]
pub use memory::MemorySemaphore;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
#[doc(inline)]
pub use redis::RedisSemaphore;
pub use reject::{Reason, Rejection};
#[doc(inline)]
pub use semaphore::{
    Acquire, AcquireError, Claim, Claims, Key, Operate, Permit, PermitLost, Policy, Semaphore,
};
pub use service::ConcurrencyLimit;
pub use settings::{OnLost, ReleaseAt};
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use usage_routes::usage_routes;

/// The README's examples are tests too.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
