//! One limit for a whole service: readiness is the permit.
//!
//! Where the key is the same for all requests, no request is needed to take a permit. So this
//! layer takes it in `poll_ready`, and a whole fleet of clients gets backpressure from one
//! semaphore, as tower's own limit gives it within a process: `buffer` queues before it,
//! `load_shed` sheds what is not ready, a balancer goes elsewhere.
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
//! A store in Redis answers after a round trip, so there no service is ready at its first poll:
//! `load_shed` sheds every request of a fresh clone. To refuse at once what finds no room, use
//! [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) with [`key::fixed`](crate::key::fixed).
//!
//! # Readiness is used at once, or it ends
//!
//! A service that waits has a place in the queue, and a service that is ready holds a permit. The
//! best way to give either up is to drop the service. Not every caller does: `load_shed` keeps a
//! service that was not ready, and a pool keeps one for each idle connection. So a service is
//! probed about each second: the task that waits for it is woken. A live task polls again and
//! keeps its place for as long as it waits, in a `buffer` too. After three probes without a poll
//! the service has left the queue, and its permit is released. Without a Tokio runtime there are
//! no probes.
//!
//! - A permit that was *lost* between two polls is acquired anew by the second.
//! - A call whose permit was lost or released since the last poll takes another one if the store
//!   grants it without waiting. Otherwise the call is answered with status 503 and
//!   [`Reason::Lost`](crate::Reason::Lost): a call cannot wait for the store and then for the inner
//!   service, which is ready only now.
//! - A *refusal* makes the service ready as well: the next call is answered with it. It counts for
//!   a second. After that a poll acquires anew, so an outage that is over is not answered later.
//!
//! # How this differs from `tower::limit::GlobalConcurrencyLimitLayer`
//!
//! It counts across processes when the semaphore does, and a permit lasts until the body of the
//! response has ended.

mod gate;
mod service;
mod watch;

pub use service::GlobalConcurrencyLimit;

use crate::{
    semaphore::{Claim, Key, Policy, Semaphore},
    settings::Settings,
};
use std::{fmt, time::Duration};
use tower_layer::Layer;

/// Limits how many requests of a service are in flight. See the [module docs](self).
#[derive(Clone)]
pub struct GlobalConcurrencyLimitLayer {
    key: Key,
    settings: Settings,
}

impl GlobalConcurrencyLimitLayer {
    /// At most `limit` requests in flight among all services of this key, counted by `semaphore`.
    pub fn new(limit: u32, key: impl Into<Key>, semaphore: impl Semaphore) -> Self {
        let mut settings = Settings::new(limit, semaphore);
        settings.wait = Duration::MAX;
        Self {
            key: key.into(),
            settings,
        }
    }

    /// The policy's name; see
    /// [`ConcurrencyLimitLayer::with_name`](crate::ConcurrencyLimitLayer::with_name).
    pub fn with_name(mut self, name: impl Into<Policy>) -> Self {
        self.settings.name(name.into());
        self
    }

    /// How long the service may stay unready for want of a permit: for ever unless set. After
    /// that it is ready to refuse: the next call is answered with status 429.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// How many services may wait; see
    /// [`ConcurrencyLimitLayer::with_max_waiting`](crate::ConcurrencyLimitLayer::with_max_waiting).
    pub fn with_max_waiting(mut self, max_waiting: usize) -> Self {
        self.settings.max_waiting = max_waiting;
        self
    }
}

impl<S> Layer<S> for GlobalConcurrencyLimitLayer {
    type Service = GlobalConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let claim = self.settings.complete(Claim::new(self.key.clone()));
        GlobalConcurrencyLimit::with(inner, claim, self.settings.clone())
    }
}

impl fmt::Debug for GlobalConcurrencyLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalConcurrencyLimitLayer")
            .field("limit", &self.settings.limit)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
