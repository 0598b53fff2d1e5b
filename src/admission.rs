//! The states of a request between its claim and its response.

use crate::{
    body::{PermitGuard, ResponseBody},
    reject::{Limits, Reason, Rejection},
    semaphore::{AcquireError, Claims, Permit},
    settings::Settings,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;

/// A request whose permit is being acquired, and the service that it is for.
pub(crate) struct Acquiring<S, B> {
    service: S,
    request: Request<B>,
    limits: Limits,
}

/// A request that is admitted: with a permit, or exempt from the limit.
pub(crate) struct Admitted<B> {
    pub(crate) request: Request<B>,
    /// `None` for an exempt request.
    pub(crate) granted: Option<Granted>,
}

/// The permit of a request, and whether it was granted under several limits.
pub(crate) struct Granted {
    permit: Permit,
    several: bool,
}

impl<S, B> Acquiring<S, B> {
    pub(crate) fn new(service: S, request: Request<B>, claims: &Claims) -> Self {
        Self {
            service,
            request,
            limits: Limits::of(claims),
        }
    }

    pub(crate) fn admit(mut self, permit: Permit, settings: &Settings) -> (S, Admitted<B>) {
        let several = self.limits.are_several();
        let permit = match several {
            true => permit,
            false => permit.under(self.limits.narrowest().0.clone()),
        };
        let granted = Granted::new(permit, several, &mut self.request, settings);
        let admitted = Admitted {
            request: self.request,
            granted: Some(granted),
        };
        (self.service, admitted)
    }

    pub(crate) fn refuse(self, error: AcquireError) -> Rejection {
        let (parts, _body) = self.request.into_parts();
        Rejection::new(Reason::Acquire(error), self.limits, parts)
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
    pub(crate) fn new<B>(
        permit: Permit,
        several: bool,
        request: &mut Request<B>,
        settings: &Settings,
    ) -> Self {
        if let Some(max_hold) = settings.max_hold {
            permit.end_after(max_hold);
        }
        let extensions = request.extensions_mut();
        if let Some(outer) = extensions.insert(permit.clone()) {
            extensions.insert(permit.clone().over(outer));
        }
        Self { permit, several }
    }

    /// Moves the permit into the body, or releases it here under [`ReleaseAt::Head`].
    pub(crate) fn respond<B: Body<Data = Bytes>>(
        granted: Option<Self>,
        mut response: Response<B>,
        settings: &Settings,
    ) -> Response<ResponseBody<B>> {
        let guard = granted.and_then(|Self { permit, several }| {
            let headers = response.headers_mut();
            match several {
                true => permit
                    .levels()
                    .iter()
                    .for_each(|level| settings.fields.append(headers, level)),
                false => settings.fields.append(headers, &permit),
            }
            PermitGuard::new(permit, settings)
        });
        response.map(|body| ResponseBody::new(body, guard))
    }
}
