//! From a request to a claim.

use crate::{
    body::ResponseBody,
    future::ResponseFuture,
    key::{KeyError, KeyExtractor},
    semaphore::Claim,
    settings::Settings,
};
use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};
use tower_service::Service;

/// A service whose requests take a permit of their key. Made by
/// [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer).
pub struct ConcurrencyLimit<S, K> {
    inner: S,
    extractor: Arc<K>,
    settings: Arc<Settings>,
}

impl<S, K> ConcurrencyLimit<S, K> {
    pub(crate) fn new(inner: S, extractor: K, settings: Settings) -> Self {
        Self {
            inner,
            extractor: Arc::new(extractor),
            settings: Arc::new(settings),
        }
    }
}

impl<S, K: KeyExtractor> ConcurrencyLimit<S, K> {
    fn claim(&self, parts: &Parts) -> Result<Option<Claim>, KeyError> {
        match self.extractor.extract(parts)? {
            Some(claim) if claim.key().is_empty() => Err(KeyError::Empty),
            claim => Ok(claim.map(|claim| self.settings.complete(claim))),
        }
    }
}

impl<S, K, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyLimit<S, K>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    /// Always ready: who is asked for is known only from the request, and the inner service must
    /// not be reserved while a request waits for its permit.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let claim = self.claim(&parts);
        let request = Request::from_parts(parts, body);
        let settings = Arc::clone(&self.settings);
        match claim {
            Err(error) => ResponseFuture::rejected(&request, error, settings),
            Ok(None) => ResponseFuture::exempt(self.inner.clone(), request, settings),
            Ok(Some(claim)) => {
                ResponseFuture::limited(self.inner.clone(), request, claim, settings)
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
