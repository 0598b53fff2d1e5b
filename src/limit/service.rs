//! The layer, and its service.

use super::{Hold, ResponseFuture, UntilBodyEnd, UntilDropped};
use crate::{
    key::{IntoClaims, Sealed},
    semaphore::{Acquire, BoxError, Semaphore},
    service::Cloned,
    settings::{Demand, Settings, claim_methods, inner_service_methods},
};
use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};
use tower_layer::Layer;
use tower_service::Service;

/// Limits how many requests of one key are in flight at a time, for requests of any type. See the [module docs](super).
///
/// # Errors
///
/// The service fails with the inner service's errors, boxed. The following errors mean that the inner service was not
/// called, or that its call was dropped:
///
/// - an [`AcquireError`](crate::AcquireError): the limit is reached, the store fails, or the claim is not valid;
/// - a [`KeyError`](crate::KeyError): the extractor has returned one, or an empty key;
/// - a [`PermitLost`](crate::PermitLost), under [`OnLost::Abort`](crate::OnLost::Abort).
///
/// Outer layers and clients may wrap the error, for example in a tonic `Status`.
/// [`AcquireError::find_in`](crate::AcquireError::find_in) finds it.
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct LimitLayer<F, H = UntilDropped> {
    extractor: Arc<F>,
    settings: Arc<Settings>,
    hold: PhantomData<fn() -> H>,
}

impl<F> LimitLayer<F> {
    /// A layer that admits at most `limit` requests in flight for each key that `extractor` returns, counted by
    /// `semaphore`. A claim of weight *w* counts as *w* requests.
    ///
    /// The extractor is a function from a reference to the request. It returns what an extractor of the
    /// [HTTP layer](crate::key) may return: a key, a claim, several claims, or an `Option` (`None` exempts the request)
    /// or a `Result` of these.
    ///
    /// # Panics
    ///
    /// A service of this layer panics outside of a Tokio runtime with time enabled if its store is in Redis, or if a
    /// request has to wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, LimitLayer, MemorySemaphore};
    ///
    /// struct Job { tenant: String, units: u32 }
    ///
    /// let by_tenant = |job: &Job| Claim::new(&*job.tenant).with_weight(job.units);
    /// let layer = LimitLayer::new(10, by_tenant, MemorySemaphore::new());
    /// # drop(layer);
    /// ```
    pub fn new(limit: u32, extractor: F, semaphore: impl Semaphore) -> Self {
        Self {
            extractor: Arc::new(extractor),
            settings: Arc::new(Settings::new(limit, semaphore)),
            hold: PhantomData,
        }
    }
}

impl<F, H> LimitLayer<F, H> {
    /// Adapts the layer to services of HTTP: an `http::Response` keeps its permit until its body ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tower_semaphore::{LimitLayer, MemorySemaphore};
    ///
    /// let by_host = |request: &Request<String>| request.uri().host().map(str::to_owned);
    /// let layer = LimitLayer::new(10, by_host, MemorySemaphore::new()).with_http_bodies();
    /// # drop(layer);
    /// ```
    pub fn with_http_bodies(self) -> LimitLayer<F, UntilBodyEnd> {
        LimitLayer {
            extractor: self.extractor,
            settings: self.settings,
            hold: PhantomData,
        }
    }

    claim_methods!(
        "LimitLayer::new(5, |account: &String| account.clone(), MemorySemaphore::new())",
        "By default it does not wait: a request that finds no room is refused at once."
    );

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}

impl<S: Cloned, F, H> Layer<S> for LimitLayer<F, H> {
    type Service = Limit<S, F, H>;

    fn layer(&self, inner: S) -> Self::Service {
        Limit {
            inner,
            layer: self.clone(),
        }
    }
}

impl<F, H> Clone for LimitLayer<F, H> {
    fn clone(&self) -> Self {
        Self {
            extractor: Arc::clone(&self.extractor),
            settings: Arc::clone(&self.settings),
            hold: PhantomData,
        }
    }
}

impl<F, H> fmt::Debug for LimitLayer<F, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("limit", &self.settings.limit)
            .field("policy", &self.settings.policy)
            .finish_non_exhaustive()
    }
}

/// The service that a [`LimitLayer`] makes.
#[must_use]
pub struct Limit<S, F, H = UntilDropped> {
    inner: S,
    layer: LimitLayer<F, H>,
}

impl<S, F, H> Limit<S, F, H> {
    inner_service_methods!(
        "LimitLayer::new(5, |_: &String| \"all\", MemorySemaphore::new()).layer(\"market\")"
    );
}

impl<S, F, H, R, C> Service<R> for Limit<S, F, H>
where
    S: Service<R> + Cloned,
    S::Error: Into<BoxError>,
    F: Fn(&R) -> C,
    C: IntoClaims,
    H: Hold<S::Response>,
{
    type Response = H::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S, R, H>;

    /// Always ready: the key is known only from the request, and the inner service must not be reserved while a request
    /// waits for its permit.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let extracted = (self.layer.extractor)(&request).into_claims(Sealed);
        let settings = Arc::clone(&self.layer.settings);
        let inner = self.inner.clone();
        let acquire = match settings.demand(extracted) {
            Demand::Exempt => return ResponseFuture::exempt(inner, request, settings),
            Demand::Refused(error) => return ResponseFuture::refused(error, settings),
            Demand::Shadow(permit) => Acquire::ready(Ok(permit)),
            Demand::Claims(claims) => settings.acquire(claims),
        };
        ResponseFuture::limited(inner, request, acquire, settings)
    }
}

impl<S: Clone, F, H> Clone for Limit<S, F, H> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, F, H> fmt::Debug for Limit<S, F, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
