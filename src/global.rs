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
//! A store in Redis has to be asked first, so there no service is ready at the first look:
//! `load_shed` sheds every request of a fresh clone. To refuse at once what finds no room, use
//! [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) with [`key::fixed`](crate::key::fixed).
//!
//! A service that waits stands in the line until it is dropped, and one that is ready holds its
//! permit until it is called. So drop a service that is not to be called.
//!
//! # How this differs from `tower::limit::GlobalConcurrencyLimitLayer`
//!
//! It counts across processes when the semaphore does, and a permit lasts until the body of the
//! response has ended.

use crate::{
    admission::Granted,
    body::ResponseBody,
    future::ResponseFuture,
    semaphore::{Acquire, AcquireError, Claim, Key, Permit, Policy, Semaphore},
    settings::Settings,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tower_layer::Layer;
use tower_service::Service;

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
        GlobalConcurrencyLimit {
            inner,
            claim: self.settings.complete(Claim::new(self.key.clone())),
            settings: Arc::new(self.settings.clone()),
            gate: Gate::Closed,
        }
    }
}

/// A service that is ready when it holds a permit. Made by [`GlobalConcurrencyLimitLayer`].
pub struct GlobalConcurrencyLimit<S> {
    inner: S,
    claim: Claim,
    settings: Arc<Settings>,
    gate: Gate,
}

enum Gate {
    Closed,
    Opening(Acquire),
    /// Ready for one call, if only to refuse it.
    Open(Result<Permit, AcquireError>),
}

impl<S> GlobalConcurrencyLimit<S> {
    /// Takes a permit, or finds out that there will be none.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<&Result<Permit, AcquireError>> {
        if let Gate::Closed = self.gate {
            self.gate = Gate::Opening(self.settings.acquire(self.claim.clone()));
        }
        if let Gate::Opening(acquire) = &mut self.gate {
            self.gate = Gate::Open(ready!(Pin::new(acquire).poll(cx)));
        }
        match &self.gate {
            Gate::Open(answer) => Poll::Ready(answer),
            Gate::Closed | Gate::Opening(_) => Poll::Pending,
        }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for GlobalConcurrencyLimit<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match ready!(self.poll_gate(cx)) {
            Ok(_) => self.inner.poll_ready(cx),
            Err(_) => Poll::Ready(Ok(())),
        }
    }

    /// # Panics
    ///
    /// When [`poll_ready`](Service::poll_ready) has not said that the service is ready.
    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let settings = Arc::clone(&self.settings);
        match mem::replace(&mut self.gate, Gate::Closed) {
            Gate::Open(Ok(permit)) => {
                let policy = self.claim.policy().clone();
                let granted = Granted::new(permit, policy, &mut request, &settings);
                ResponseFuture::called(self.inner.call(request), granted, settings)
            }
            Gate::Open(Err(error)) => ResponseFuture::refused(&request, error, settings),
            Gate::Closed | Gate::Opening(_) => panic!("called before it was ready"),
        }
    }
}

/// A clone holds no permit.
impl<S: Clone> Clone for GlobalConcurrencyLimit<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            claim: self.claim.clone(),
            settings: Arc::clone(&self.settings),
            gate: Gate::Closed,
        }
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

impl<S: fmt::Debug> fmt::Debug for GlobalConcurrencyLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalConcurrencyLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
