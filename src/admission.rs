//! The states of a request between its claim and its response.

use crate::{
    body::{PermitGuard, ResponseBody, Tunnel},
    observe::{Claiming, Outcome},
    reject::{Limits, Reason, Rejection},
    semaphore::{AcquireError, Permit},
    settings::Settings,
};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;

/// A request whose permit is being acquired, and the service that it is for.
pub(crate) struct Acquiring<S, B> {
    service: S,
    request: Request<B>,
    limits: Limits,
    counted: Claiming,
}

/// A request that is admitted: with a permit, or exempt from the limit.
pub(crate) struct Admitted<B> {
    pub(crate) request: Request<B>,
    /// `None` for an exempt request.
    pub(crate) granted: Option<Granted>,
}

/// The permit of a request, and the request's method.
pub(crate) struct Granted {
    permit: Permit,
    method: Method,
}

impl<S, B> Acquiring<S, B> {
    pub(crate) fn new(service: S, request: Request<B>, limits: Limits) -> Self {
        Self {
            service,
            request,
            counted: Claiming::request(limits.narrowest().policy.as_str()),
            limits,
        }
    }

    pub(crate) fn admit(mut self, permit: Permit, settings: &Settings) -> (S, Admitted<B>) {
        // Each limit sees how long its permits are held.
        let limits = permit.levels().zip(self.limits.iter());
        let limits = limits.map(|(_, limit)| (&limit.policy, limit.key));
        settings.retry.time(&permit, limits);
        self.counted.ended(permit.outcome());
        let granted = Granted::new(permit, &mut self.request, settings);
        let admitted = Admitted {
            request: self.request,
            granted: Some(granted),
        };
        (self.service, admitted)
    }

    pub(crate) fn refuse(mut self, error: AcquireError, settings: &Settings) -> Rejection {
        let (parts, _body) = self.request.into_parts();
        let reason = Reason::Acquire { error };
        let rejection = Rejection::new(
            reason,
            self.limits.in_force(&*settings.semaphore),
            parts,
            &settings.retry,
            &settings.fields,
        );
        let (by, outcome) = (rejection.policy().as_str(), rejection.reason().outcome());
        self.counted.refused(Some(by), outcome);
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

impl Granted {
    /// Puts a clone for the handler into the request's extensions. If an outer limit has put its
    /// permit there, the clone holds that permit too.
    pub(crate) fn new<B>(permit: Permit, request: &mut Request<B>, settings: &Settings) -> Self {
        // In shadow the store's permit has that bound.
        if let Some(max_hold) = settings.max_hold.filter(|_| !permit.is_shadow()) {
            permit.end_after(max_hold);
        }
        let extensions = request.extensions_mut();
        if let Some(outer) = extensions.insert(permit.clone()) {
            extensions.insert(permit.clone().with_outer(&outer));
        }
        let method = request.method().clone();
        Self { permit, method }
    }

    pub(crate) fn permit(&self) -> Permit {
        self.permit.clone()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.permit.outcome()
    }

    /// Moves the permit into the body, or releases it here under [`ReleaseAt::Head`].
    pub(crate) fn respond<B: Body<Data = Bytes>>(
        granted: Option<Self>,
        mut response: Response<B>,
        settings: &Settings,
    ) -> Response<ResponseBody<B>> {
        let guard = granted.and_then(|Self { permit, method }| {
            let tunnel = Tunnel::of(&method, response.status(), settings);
            let headers = response.headers_mut();
            if !permit.is_shadow() {
                let levels = permit.levels();
                levels.for_each(|level| settings.fields.append(headers, level));
            }
            PermitGuard::new(permit, headers, tunnel, settings)
        });
        response.map(|body| ResponseBody::new(body, guard))
    }
}
