//! One limit for a whole service, whose permit is acquired in `poll_ready`.
//!
//! Where the key is the same for all requests, no request is needed to acquire a permit. So this
//! layer acquires in `poll_ready`, and a whole fleet of clients gets backpressure from one
//! semaphore, as tower's own limit gives it within a process: `buffer` queues requests outside of
//! the limit, `load_shed` refuses them while the service is not ready, a balancer chooses another
//! service.
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
//! A service that waits is in the queue, and a service that is ready holds a permit. Dropping the
//! service ends both. Not every caller drops it: `load_shed` keeps a service that was not ready,
//! and a pool keeps one for each idle connection. So a probe wakes the task that waits for the
//! service, about once a second. A live task then polls the service again, which keeps its position
//! in the queue, in a `buffer` too. After three probes without a poll the service leaves the queue,
//! and its permit is released. The probes run in the runtime of a service, and go on when that
//! runtime has ended. Without a Tokio runtime with time enabled there are no probes.
//!
//! - A permit that was *lost* between two polls is replaced: the second poll acquires anew.
//! - A call whose permit was lost or released since the last poll gets another one if the store
//!   grants it without waiting. Otherwise the call is answered with status 503 and
//!   [`Reason::Lost`](crate::Reason::Lost). It does not wait for the store, because the inner
//!   service, which is ready, would be reserved meanwhile.
//! - A *refusal* makes the service ready as well: the next call is answered with that refusal. A
//!   poll more than a second after the refusal acquires anew, because the cause may be over. A call
//!   without such a poll is still answered with the refusal: it cannot reach the inner service,
//!   whose readiness was never polled.
//! - A service that waits under a [limit that changes](GlobalConcurrencyLimitLayer::with_live_limit)
//!   acquires anew under the new one, at its next poll. It keeps its position in the queue, and its
//!   wait ends when it would have. A permit that it was granted meanwhile counts, if there was room for it
//!   under the new limit too.
//! - A service that waits in one Tokio runtime and is polled in another acquires anew there, in the same
//!   way.
//!
//! # Within another limit
//!
//! Where an outer limit counts in the same semaphore (store, policy and key), the two
//! [share a permit](crate::ConcurrencyLimitLayer#nested-limits). A service that is polled within the outer
//! limit's call is ready without a permit of its own, and shares that of the request which it is called with; a
//! request without one needs a permit that is granted without a wait. Behind a `buffer`, in a task of its own or in
//! the response's body the service does not see the outer permit, and waits for its own request. With the feature `tracing` a wait of 30 s is logged as a warning. Give one of the
//! limits a policy of its own.
//!
//! # How this differs from `tower::limit::GlobalConcurrencyLimitLayer`
//!
//! This layer counts across processes when the semaphore does, and a permit lasts until the body
//! of the response has ended. The wait can be bounded, and a limit of 0 refuses each call instead of
//! never being ready.

mod gate;
mod layer;
mod service;
mod watch;

pub use layer::GlobalConcurrencyLimitLayer;
pub use service::GlobalConcurrencyLimit;
