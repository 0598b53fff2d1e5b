//! One limit for a whole service, whose permit is acquired in `poll_ready`.
//!
//! The key is the same for all requests, so this layer acquires a permit in `poll_ready`, before a request exists. A
//! whole fleet of clients gets backpressure from one semaphore, like tower's own limit within a process: `buffer`
//! queues requests outside of the limit, `load_shed` refuses them while the service is not ready, a balancer chooses
//! another service.
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
//!
//! # type Body = http_body_util::Full<bytes::Bytes>;
//! # let client = tower::service_fn(|_: http::Request<Body>| async {
//! #     Ok::<_, std::convert::Infallible>(http::Response::new(Body::default()))
//! # });
//! // At most three requests to this host at a time, their responses' bodies included.
//! let limit = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new());
//! let client = ServiceBuilder::new().load_shed().layer(limit).service(client);
//! # drop(client);
//! ```
//!
//! A store in Redis answers after a round trip, so no service over it is ready at its first poll:
//! `load_shed` refuses every request of a fresh clone. To refuse only requests that find no room,
//! use [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) with
//! [`key::fixed`](crate::key::fixed).
//!
//! # Use readiness at once, or it ends
//!
//! A waiting service is in the queue, and a ready service holds a permit. Dropping the service ends both. Not every
//! caller drops it: `load_shed` keeps a service that was not ready, and a pool keeps one for each idle connection. So a
//! probe wakes the waiting task about once a second. A live task then polls the service again, also in a `buffer`, and
//! keeps its position in the queue. After three probes without a poll the service leaves the queue, or its permit is
//! released. The probes run on a separate thread with the real clock, so they go on if the service's runtime ends.
//!
//! - A permit that was *lost* between two polls is replaced: the second poll acquires again.
//! - A call whose permit was lost or released since the last poll gets another one if the store
//!   grants it without waiting. Otherwise the call is answered with status 503 and
//!   [`Reason::Lost`](crate::Reason::Lost). It does not wait for the store, because that would
//!   reserve the inner service, which is ready.
//! - A *refusal* also makes the service ready: the next call is answered with that refusal. A poll more than a second
//!   after the refusal acquires again, because the cause may be over. A call without such a poll still gets the
//!   refusal, because the inner service was never polled for readiness.
//! - A service that waits follows a limit that an [operator sets](crate::Operate::set_limit), and keeps its
//!   position in the queue and its deadline. A permit that was granted before counts.
//! - A service that waits in one Tokio runtime and is polled in another acquires again there, with the same position
//!   and deadline.
//!
//! # Within another limit
//!
//! Two nested limits that count in the same semaphore (store, policy and key) are a
//! [mistake](crate::ConcurrencyLimitLayer#nested-limits). A service of this layer knows its request only in `call`,
//! which is then answered with status 500. If the key is full, `poll_ready` waits for the permit that the request
//! already holds: until a bounded wait ends, or without end. With the feature `tracing` a wait of 30 s is logged as a
//! warning that names this cause. Use a separate policy for each of the two limits.
//!
//! A client may give a request back, for example if its connection was closed. Such a request contains the permit of
//! its first attempt until `call` removes it. So under a limit of 1 the service never becomes ready for the second
//! attempt. A middleware that retries must remove the permit first: `request.extensions_mut().remove::<Permit>()`.
//!
//! # How this differs from `tower::limit::GlobalConcurrencyLimitLayer`
//!
//! This layer counts across processes if the semaphore does, and a permit lasts until the
//! response's body has ended. The wait can be bounded, and a limit of 0 refuses each call instead
//! of never being ready.

mod gate;
mod service;

pub use service::{GlobalConcurrencyLimit, GlobalConcurrencyLimitLayer};
