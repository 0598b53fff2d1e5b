//! The layer, and the service whose readiness is a permit.

use super::gate::{Gate, GateAnswer, Gates};
use crate::{
    admission::RequestPermit,
    body::ResponseBody,
    future::{HttpService, ResponseFuture},
    reject::{Reason, RequestLimits},
    semaphore::{Acquire, BoxError, Claim, Key, Permit, Semaphore},
    settings::{Settings, inner_service_methods, settings_methods},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{
    fmt, iter,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tower_layer::Layer;
use tower_service::Service;

/// A service that is ready when it holds a permit, or when it will refuse the next call.
///
/// [`GlobalConcurrencyLimitLayer`](super::GlobalConcurrencyLimitLayer) makes it, and has further settings. A clone
/// holds no permit, and acquires a separate one.
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use tower::{Service, ServiceExt, service_fn};
/// use tower_semaphore::{GlobalConcurrencyLimit, MemorySemaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let host = service_fn(async |_: Request<String>| {
///     Ok::<_, std::convert::Infallible>(Response::new("page".to_owned()))
/// });
/// let mut service = GlobalConcurrencyLimit::new(host, 1, "example.org", MemorySemaphore::new());
/// let mut clone = service.clone();
///
/// let response = service.ready().await.unwrap().call(Request::default()).await.unwrap();
/// let wait = std::time::Duration::from_millis(10);
/// assert!(tokio::time::timeout(wait, clone.ready()).await.is_err());
/// drop(response);
/// assert!(clone.ready().await.is_ok());
/// # }
/// ```
#[must_use]
pub struct GlobalConcurrencyLimit<S> {
    inner: S,
    shared: LayerState,
    /// Made by the first poll.
    gate: Option<Arc<Gate>>,
}

/// The state that the services of a layer share.
#[derive(Clone)]
pub(super) struct LayerState {
    pub(super) key: Key,
    pub(super) settings: Arc<Settings>,
    gates: Arc<Gates>,
}

impl LayerState {
    pub(super) fn new(limit: u32, key: Key, semaphore: impl Semaphore) -> Self {
        // By default a claim waits without bound, because that is what backpressure means.
        let settings = Settings {
            wait: Duration::MAX,
            ..Settings::new(limit, semaphore)
        };
        Self {
            key,
            settings: Arc::new(settings),
            gates: Arc::default(),
        }
    }

    fn claim(&self) -> Claim {
        self.settings.complete(Claim::new(self.key.clone()))
    }

    fn acquire(&self) -> Acquire {
        self.settings.acquire(self.claim().into())
    }

    /// Acquires without a wait.
    fn try_acquire(&self) -> Acquire {
        let claim = self.claim().with_wait(Duration::ZERO);
        self.settings.acquire(claim.into())
    }
}

impl<S> GlobalConcurrencyLimit<S> {
    /// A service that admits at most `limit` requests in flight, together with all services of this
    /// key, counted by `semaphore`, with the default settings of
    /// [`GlobalConcurrencyLimitLayer`](super::GlobalConcurrencyLimitLayer). See
    /// [`GlobalConcurrencyLimit`] for an example, and
    /// [`GlobalConcurrencyLimitLayer::new`](super::GlobalConcurrencyLimitLayer::new) for its panics.
    pub fn new(inner: S, limit: u32, key: impl Into<Key>, semaphore: impl Semaphore) -> Self {
        Self::with_state(inner, LayerState::new(limit, key.into(), semaphore))
    }

    pub(super) fn with_state(inner: S, shared: LayerState) -> Self {
        Self {
            inner,
            shared,
            gate: None,
        }
    }

    inner_service_methods!(
        "GlobalConcurrencyLimit::new(\"market\", 3, \"example.org\", MemorySemaphore::new())"
    );

    /// Ready once the answer is known: true for a permit.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let shared = &self.shared;
        let gate = self.gate.get_or_insert_with(|| shared.gates.open());
        gate.poll(cx, || shared.acquire())
    }

    /// The permit for a call, or the reason of its refusal.
    fn take<B>(&self, request: &mut Request<B>) -> Result<Permit, Reason> {
        // Only the call has the request, whose extensions show the limits outside.
        let nesting = self.shared.settings.nesting(request.extensions_mut());
        let answer = self.gate.as_ref().map(|gate| gate.take());
        let answer = match answer.unwrap_or(GateAnswer::NotReady) {
            GateAnswer::NotReady => panic!("called before it was ready"),
            GateAnswer::Granted(permit) => Ok(permit),
            GateAnswer::Refused(error) => Err(error),
            // Does not wait for another permit, because the inner service is ready, and a wait would reserve it.
            GateAnswer::Lost => match self.shared.try_acquire().answer() {
                Ok(Ok(permit)) => Ok(permit),
                _ => return Err(Reason::lost()),
            },
        };
        let answer = match nesting {
            Some(nesting) => nesting.judge(answer),
            None => answer,
        };
        answer.map_err(|error| Reason::Acquire { error })
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for GlobalConcurrencyLimit<S>
where
    S: HttpService<ReqBody, Body = ResBody>,
    ReqBody: Body + Send + 'static,
    ResBody: Body<Data = Bytes>,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if !ready!(self.poll_gate(cx)) {
            return Poll::Ready(Ok(()));
        }
        let poll = self.inner.poll_ready(cx);
        if let (Poll::Pending, Some(gate)) = (&poll, &self.gate) {
            gate.wait_for_inner(cx);
        }
        poll
    }

    /// # Panics
    ///
    /// When the last [`poll_ready`](Service::poll_ready) did not return `Ready`, or its readiness
    /// was used by an earlier call.
    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let settings = Arc::clone(&self.shared.settings);
        match self.take(&mut request) {
            Ok(permit) => {
                // The layer has one key, so its holds need no hash of the key. Refusals use 0 too.
                settings
                    .retry
                    .time_permit(&permit, iter::once((&settings.policy, 0)));
                let limits = || RequestLimits::one(settings.policy.clone(), settings.limit, None);
                let granted = RequestPermit::new(permit, &mut request, limits, &settings);
                ResponseFuture::called(self.inner.call(request), granted, settings)
            }
            Err(reason) => ResponseFuture::refused(request, reason, settings.limit, settings),
        }
    }
}

/// A clone holds no permit and is in no queue.
impl<S: Clone> Clone for GlobalConcurrencyLimit<S> {
    fn clone(&self) -> Self {
        Self::with_state(self.inner.clone(), self.shared.clone())
    }
}

impl<S: fmt::Debug> fmt::Debug for GlobalConcurrencyLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalConcurrencyLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Limits how many requests of a service are in flight, with backpressure: a service without a
/// permit is not ready. See the [module docs](crate::global).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
///
/// let layer = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new())
///     .with_wait(Duration::from_secs(5));
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct GlobalConcurrencyLimitLayer(LayerState);

impl GlobalConcurrencyLimitLayer {
    /// A layer that admits at most `limit` requests in flight among all services of this key,
    /// counted by `semaphore`. Services of other layers and other processes count too, if they have
    /// the same store, key and policy.
    ///
    /// A limit of 0 makes a service that is always ready and refuses each call with status 429, so
    /// that an operator can close a service and its callers learn of it. Tower's own limit would
    /// never be ready. An empty key makes a service that refuses each call with status 400.
    ///
    /// # Panics
    ///
    /// A service of this layer that has to wait, or whose store is in Redis, panics if it is polled
    /// outside of a Tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
    ///
    /// let layer = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new());
    /// ```
    pub fn new(limit: u32, key: impl Into<Key>, semaphore: impl Semaphore) -> Self {
        Self(LayerState::new(limit, key.into(), semaphore))
    }

    settings_methods!(
        "GlobalConcurrencyLimitLayer::new(3, \"example.org\", MemorySemaphore::new())",
        "By default it waits without a bound. A service that waits is not ready. When this time is \
         over, it is ready, and answers the next call with status 429; with a time of zero, as soon \
         as it finds no room."
    );

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.0.settings)
    }
}

impl<S> Layer<S> for GlobalConcurrencyLimitLayer {
    type Service = GlobalConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GlobalConcurrencyLimit::with_state(inner, self.0.clone())
    }
}

impl fmt::Debug for GlobalConcurrencyLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalConcurrencyLimitLayer")
            .field("limit", &self.0.settings.limit)
            .field("key", &self.0.key)
            .finish_non_exhaustive()
    }
}
