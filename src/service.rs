//! Turns a request into claims, and acquires a permit for them.

use crate::{
    admission::Acquiring,
    body::ResponseBody,
    future::{HttpService, ResponseFuture},
    key::KeyExtractor,
    reject::{Reason, RequestLimits},
    semaphore::{Acquire, BoxError, Semaphore},
    settings::{Demand, Settings, inner_service_methods},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};
use tower_service::Service;

/// A service that acquires a permit for each request, from the semaphore of the request's key.
///
/// [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) makes it, and has further settings.
///
/// # Panics
///
/// A store that needs a Tokio runtime panics outside of one, in `call` or when the future is
/// polled: see [`Semaphore::acquire`].
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use tower::{ServiceExt, service_fn};
/// use tower_semaphore::{ConcurrencyLimit, MemorySemaphore, key};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let market = service_fn(async |_: Request<String>| {
///     Ok::<_, std::convert::Infallible>(Response::new("items".to_owned()))
/// });
/// let service = ConcurrencyLimit::new(market, 5, key::fixed("market"), MemorySemaphore::new());
/// let response = service.oneshot(Request::new(String::new())).await.unwrap();
/// assert_eq!(response.headers()["ratelimit"], "\"concurrency\";r=4");
/// # }
/// ```
#[must_use]
pub struct ConcurrencyLimit<S, K> {
    inner: S,
    extractor: Arc<K>,
    settings: Arc<Settings>,
}

impl<S, K> ConcurrencyLimit<S, K> {
    /// A service that admits at most `limit` requests of `inner` in flight for each key that
    /// `extractor` returns, counted by `semaphore`, with the default settings of
    /// [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer).
    ///
    /// # Examples
    ///
    /// See [`ConcurrencyLimit`].
    pub fn new(inner: S, limit: u32, extractor: K, semaphore: impl Semaphore) -> Self
    where
        K: KeyExtractor,
    {
        let settings = Arc::new(Settings::new(limit, semaphore));
        Self::with(inner, Arc::new(extractor), settings)
    }

    pub(crate) fn with(inner: S, extractor: Arc<K>, settings: Arc<Settings>) -> Self {
        Self {
            inner,
            extractor,
            settings,
        }
    }

    inner_service_methods!(
        "ConcurrencyLimit::new(\"market\", 5, key::fixed(\"all\"), MemorySemaphore::new())"
    );
}

/// A service that is `Clone`. Every such service implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not `Clone`, and the limit calls a clone of it for each request",
    label = "this service is not `Clone`",
    note = "derive `Clone` for it, or put `tower::buffer::BufferLayer` or `tower::util::BoxCloneService` between the limit and it"
)]
pub trait Cloned: Clone {}

#[diagnostic::do_not_recommend]
impl<S: Clone> Cloned for S {}

impl<S, K, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyLimit<S, K>
where
    S: HttpService<ReqBody, Body = ResBody> + Cloned,
    K: KeyExtractor,
    ReqBody: Body + Send + 'static,
    ResBody: Body<Data = Bytes>,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    /// Always ready: the key is known only from the request, and the inner service must not be
    /// reserved while a request waits for its permit.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let settings = Arc::clone(&self.settings);
        let nesting = settings.nesting(&mut parts.extensions);
        let demand = settings.demand(self.extractor.extract(&parts));
        let service = self.inner.clone();
        let request = Request::from_parts(parts, body);
        match demand {
            Demand::Exempt => ResponseFuture::exempt(service, request, settings),
            Demand::Refused(error) => {
                let reason = Reason::Key { error };
                ResponseFuture::refused(request, reason, settings.limit, settings)
            }
            Demand::Shadow(permit) => {
                let limits = RequestLimits::one(settings.policy.clone(), settings.limit, None);
                let acquiring = Acquiring::new(service, request, limits);
                ResponseFuture::limited(acquiring, Acquire::ready(Ok(permit)), settings)
            }
            Demand::Claims(claims) => {
                let limits = RequestLimits::for_claims(&claims, &settings.retry);
                let acquire = settings.acquire_under(nesting, claims);
                let acquiring = Acquiring::new(service, request, limits);
                ResponseFuture::limited(acquiring, acquire, settings)
            }
        }
    }
}

impl<S: Clone, K> Clone for ConcurrencyLimit<S, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            extractor: Arc::clone(&self.extractor),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S: fmt::Debug, K> fmt::Debug for ConcurrencyLimit<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
