//! The service whose readiness is a permit.

use super::{
    gate::{Answer, Gate},
    watch::Watch,
};
use crate::{
    admission::Granted,
    body::ResponseBody,
    future::ResponseFuture,
    reject::Reason,
    semaphore::{Acquire, Claim, Permit, PermitLost},
    settings::Settings,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tower_service::Service;

/// A service that is ready when it holds a permit. Made by
/// [`GlobalConcurrencyLimitLayer`](super::GlobalConcurrencyLimitLayer).
pub struct GlobalConcurrencyLimit<S> {
    inner: S,
    shared: Arc<Shared>,
    /// Made by the first poll.
    gate: Option<Arc<Gate>>,
}

/// What all clones share.
struct Shared {
    claim: Claim,
    settings: Arc<Settings>,
    watch: Arc<Watch>,
}

impl Shared {
    fn acquire(&self) -> Acquire {
        self.settings.acquire(self.claim.clone())
    }
}

impl<S> GlobalConcurrencyLimit<S> {
    pub(super) fn with(inner: S, claim: Claim, settings: Settings) -> Self {
        Self {
            inner,
            shared: Arc::new(Shared {
                claim,
                settings: Arc::new(settings),
                watch: Arc::default(),
            }),
            gate: None,
        }
    }

    /// Whether there is a permit, once that is known.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let shared = &*self.shared;
        let gate = self.gate.get_or_insert_with(|| shared.watch.gate());
        let answer = gate.poll(cx, || shared.acquire());
        shared.watch.start();
        answer
    }

    fn poll_inner<B>(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<Request<B>>,
    {
        let poll = self.inner.poll_ready(cx);
        if let (Poll::Pending, Some(gate)) = (&poll, &self.gate) {
            gate.wait_for_inner(cx);
        }
        poll
    }

    /// The permit for a call, or why the call is refused.
    fn take(&self) -> Result<Permit, Reason> {
        let answer = self.gate.as_ref().map(|gate| gate.take());
        match answer.unwrap_or(Answer::NotReady) {
            Answer::Granted(permit) => Ok(permit),
            Answer::Refused(error) => Err(Reason::Acquire(error)),
            Answer::Lost => match self.shared.acquire().answer() {
                Ok(Ok(permit)) => Ok(permit),
                _ => Err(Reason::Lost(PermitLost)),
            },
            Answer::NotReady => panic!("called before it was ready"),
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
        if ready!(self.poll_gate(cx)) {
            self.poll_inner(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    /// # Panics
    ///
    /// When [`poll_ready`](Service::poll_ready) has not said that the service is ready.
    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let settings = Arc::clone(&self.shared.settings);
        match self.take() {
            Ok(permit) => {
                let policy = self.shared.claim.policy().clone();
                let granted = Granted::new(permit, policy, &mut request, &settings);
                ResponseFuture::called(self.inner.call(request), granted, settings)
            }
            Err(reason) => ResponseFuture::refused(&request, reason, settings),
        }
    }
}

/// A clone holds no permit.
impl<S: Clone> Clone for GlobalConcurrencyLimit<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
            gate: None,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for GlobalConcurrencyLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalConcurrencyLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
