//! The states of a request between its claim and its response.

use crate::{
    body::{PermitGuard, Tunnel, Upload},
    observe::{Outcome, OutcomeCounter},
    reject::{Reason, Rejection, RequestLimits},
    semaphore::{AcquireError, LayerPermit, Permit, PermitLost, SyncFuture},
    settings::Settings,
};
use http::{Method, Request, Response, request::Parts};
use http_body::Body;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// A request whose permit is being acquired, and the service for it.
pub(crate) struct Acquiring<S, B> {
    service: S,
    request: Request<B>,
    limits: RequestLimits,
    counter: OutcomeCounter,
}

/// An admitted request, which has a permit or is exempt from the limit.
pub(crate) struct Admitted<B> {
    pub(crate) request: Request<B>,
    /// `None` for an exempt request.
    pub(crate) granted: Option<RequestPermit>,
}

/// The permit of a request, from the grant to the response's head.
pub(crate) struct RequestPermit {
    permit: LayerPermit,
    method: Method,
    /// `None` if the request continues after a loss. Boxed so that such a request stays small.
    abort: Option<Box<Abort>>,
    /// Watches the request's body for stalls until it is dropped. `None` if the client may stall without bound.
    _upload: Option<Arc<Upload>>,
}

/// Waits for the loss of a request's permit, and keeps the parts for the response to a loss.
struct Abort {
    lost: SyncFuture<()>,
    /// A copy of the request's head. It has no extensions, because these may hold the permit.
    head: Parts,
    limits: RequestLimits,
}

impl<S, B: 'static> Acquiring<S, B> {
    pub(crate) fn new(service: S, request: Request<B>, limits: RequestLimits) -> Self {
        Self {
            service,
            request,
            counter: OutcomeCounter::request(limits.narrowest().policy.as_str()),
            limits,
        }
    }

    pub(crate) fn admit(mut self, permit: Permit, settings: &Settings) -> (S, Admitted<B>) {
        // Records for each limit how long its permits are held.
        let limits = permit.levels().zip(self.limits.iter());
        let limits = limits.map(|(_, limit)| (&limit.policy, limit.key));
        settings.retry.time_permit(&permit, limits);
        self.counter.ended(permit.outcome());
        let limits = || self.limits;
        let granted = RequestPermit::new(permit, &mut self.request, limits, settings);
        let admitted = Admitted {
            request: self.request,
            granted: Some(granted),
        };
        (self.service, admitted)
    }

    pub(crate) fn refuse(mut self, error: AcquireError, settings: &Settings) -> Rejection
    where
        B: Body + Send + 'static,
    {
        let reason = Reason::Acquire { error };
        let rejection = settings.refuse(reason, self.limits, self.request);
        let (policy, outcome) = (rejection.policy().as_str(), rejection.reason().outcome());
        self.counter.refused(Some(policy), outcome);
        rejection
    }
}

impl<B> Admitted<B> {
    pub(crate) fn exempt(request: Request<B>) -> Self {
        Self {
            request,
            granted: None,
        }
    }
}

/// Polls the inner service. `lost` is the loss of the request's permit, if that loss ends the request.
///
/// # Errors
///
/// Returns [`PermitLost`] once the permit is lost. A ready result is then discarded.
pub(crate) fn poll_unless_lost<T>(
    lost: Option<&mut SyncFuture<()>>,
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<Result<T, PermitLost>> {
    let answer = poll(cx);
    match lost.map(|lost| Pin::new(lost).poll(cx)) {
        Some(Poll::Ready(())) => Poll::Ready(Err(PermitLost)),
        Some(Poll::Pending) | None => answer.map(Ok),
    }
}

impl RequestPermit {
    /// Puts a clone for the handler into the request's extensions. If an outer limit has put its
    /// permit there, the clone holds that permit too. `limits` is called only if a loss ends the request.
    pub(crate) fn new<B: 'static>(
        permit: Permit,
        request: &mut Request<B>,
        limits: impl FnOnce() -> RequestLimits,
        settings: &Settings,
    ) -> Self {
        let lost = settings.bound(&permit);
        let abort = lost.map(|lost| Abort::new(lost, request, limits().granted(&permit)));
        let watch = |max_stall| Upload::watch(request, &permit, max_stall);
        let upload = settings.max_stall.map(watch);
        let extensions = request.extensions_mut();
        if let Some(outer) = extensions.insert(permit.clone()) {
            extensions.insert(permit.clone().with_outer(&outer));
        }
        let method = request.method().clone();
        let abort = abort.map(Box::new);
        Self {
            permit: LayerPermit::new(permit),
            method,
            abort,
            _upload: upload,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.permit.outcome()
    }

    /// [Polls the inner service](poll_unless_lost) for a request. A response that comes with the loss is discarded,
    /// because its body would be cut at once.
    pub(crate) fn poll_inner<T>(
        granted: &mut Option<Self>,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, PermitLost>> {
        let abort = granted.as_mut().and_then(|granted| granted.abort.as_mut());
        poll_unless_lost(abort.map(|abort| &mut abort.lost), cx, poll)
    }

    /// Returns the rejection of a request that ends with its permit. Returns it once, after
    /// [`poll_inner`](Self::poll_inner) has reported the loss, and otherwise `None`.
    pub(crate) fn abort(&mut self, settings: &Settings) -> Option<Rejection> {
        let Abort { head, limits, .. } = *self.abort.take()?;
        let (retry, fields) = (&settings.retry, &settings.fields);
        Some(Rejection::new(
            Reason::aborted(),
            limits,
            head,
            retry,
            fields,
        ))
    }

    /// See [`Cooldown::start`](crate::settings::Cooldown::start). `None` if the response pauses nothing.
    pub(crate) fn cool_down<B>(
        &self,
        response: &Response<B>,
        settings: &Settings,
    ) -> Option<SyncFuture<()>> {
        settings.cooldown.as_ref()?.start(response, &self.permit)
    }

    /// Moves the permit into the guard of the response's body, or releases it here under [`ReleaseAt::Head`].
    pub(crate) fn guard_body<B>(
        self,
        response: &mut Response<B>,
        settings: &Settings,
    ) -> Option<PermitGuard> {
        let Self {
            permit,
            method,
            abort,
            ..
        } = self;
        let tunnel = Tunnel::opened_by(&method, response.status(), settings);
        let headers = response.headers_mut();
        if !permit.is_shadow() {
            let levels = permit.levels();
            levels.for_each(|level| settings.fields.append(headers, level));
        }
        let lost = abort.map(|abort| abort.lost);
        PermitGuard::new(permit, lost, tunnel, headers, settings)
    }
}

impl Abort {
    fn new<B>(lost: SyncFuture<()>, request: &Request<B>, limits: RequestLimits) -> Self {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = request.method().clone();
        head.uri = request.uri().clone();
        head.version = request.version();
        head.headers = request.headers().clone();
        Self { lost, head, limits }
    }
}
