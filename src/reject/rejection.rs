//! A request that is not admitted, and its response.

use super::{
    Limits, Reason, RejectionBody,
    limits::Limit,
    problem::{Problem, grpc_content_type},
};
use crate::{
    fields,
    semaphore::{AcquireError, Policy},
};
use bytes::Bytes;
use http::{HeaderMap, Response, request::Parts};
use http_body::Body;
use std::{error::Error, fmt, sync::Arc};

/// Seconds until a client should try again: the shortest `Retry-After`, because nothing tells when a
/// holder will be done.
const RETRY_AFTER: u64 = 1;

/// Makes the response of a rejection.
pub(crate) type Reject = dyn Fn(Rejection) -> Response<RejectionBody> + Send + Sync;

/// The response that a layer makes unless its user sets another function.
pub(crate) fn default_rejection(rejection: Rejection) -> Response<RejectionBody> {
    rejection.into_response().map(RejectionBody::Text)
}

/// The function that a user sets, with its response's body boxed.
pub(crate) fn reject<F, B>(reject: F) -> Arc<Reject>
where
    F: Fn(Rejection) -> Response<B> + Send + Sync + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Arc::new(move |rejection| reject(rejection).map(RejectionBody::boxed))
}

/// A request that is not admitted, and why.
///
/// A layer answers with [`into_response`](Self::into_response) unless
/// [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection) sets another function:
///
/// | reason | status | problem type |
/// |---|---|---|
/// | limit reached, queue full, wait over | 429, `Retry-After` | `quota-exceeded` |
/// | the store failed, is overloaded or is shut down | 503, `Retry-After` | `temporary-reduced-capacity` |
/// | a global limit's permit was lost between readiness and call | 503, `Retry-After` | `temporary-reduced-capacity` |
/// | the request names no key, or a wrong one | 400 | `about:blank` |
/// | no store can grant the claim ([`AcquireError::Invalid`]) | 400 | `about:blank` |
///
/// The RateLimit fields are added where there is a `Retry-After`. The `RateLimit` field of a refusal
/// has the units that are left for a new claim, none if claims wait in the queue, and as `t` the
/// same number of seconds as `Retry-After`. If you change only `Retry-After`, clients follow it: by
/// the draft `Retry-After` takes precedence. If the store failed there is no `RateLimit` field.
///
/// The body is a problem of RFC 9457 with the types of the RateLimit draft. A gRPC request gets
/// status 200 with `grpc-status` 8, 14 or 3 instead. The response's extensions have the reason: an
/// [`AcquireError`], a [`PermitLost`](crate::PermitLost) or a [`KeyError`](crate::KeyError).
///
/// # Examples
///
/// ```
/// use http::HeaderValue;
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Rejection, key};
///
/// fn slower(rejection: Rejection) -> http::Response<String> {
///     let mut response = rejection.into_response();
///     response.headers_mut().insert("retry-after", HeaderValue::from_static("30"));
///     response
/// }
///
/// let layer = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new())
///     .with_rejection(slower);
/// ```
#[derive(Clone)]
pub struct Rejection {
    reason: Reason,
    /// The limit that applied.
    refusing: Limit,
    limits: Limits,
    parts: Parts,
}

impl Rejection {
    /// `limits` are those of the claims. A store that combines several limits may refuse under
    /// another one.
    pub(crate) fn new(reason: Reason, limits: Limits, parts: Parts) -> Self {
        let refusing = match &reason {
            Reason::Acquire(error) => limits.refusing(error),
            _ => limits.narrowest().clone(),
        };
        Self {
            reason,
            refusing,
            limits,
            parts,
        }
    }

    /// Why the request is not admitted.
    ///
    /// # Examples
    ///
    /// See [`Reason`].
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The policy under which the request was not admitted: of several, the one that refused.
    ///
    /// # Examples
    ///
    /// ```
    /// fn text(rejection: &tower_semaphore::Rejection) -> String {
    ///     let (path, policy) = (rejection.parts().uri.path(), rejection.policy());
    ///     format!("{path}: the limit of {policy} is {}", rejection.limit())
    /// }
    /// # drop(text);
    /// ```
    pub fn policy(&self) -> &Policy {
        &self.refusing.0
    }

    /// The limit of that policy, in units. See [`policy`](Self::policy) for an example.
    pub fn limit(&self) -> u32 {
        self.refusing.1
    }

    /// The request's head. See [`policy`](Self::policy) for an example.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The default response. See [`Rejection`] for its form and for an example.
    pub fn into_response(self) -> Response<String> {
        let problem = Problem::of(&self.reason);
        let mut response = match grpc_content_type(&self.parts.headers) {
            Some(content_type) => problem.grpc(content_type.clone()),
            None => problem.response(self.policy()),
        };
        if problem.retry {
            self.add_fields(response.headers_mut());
        }
        match self.reason {
            Reason::Acquire(error) => response.extensions_mut().insert(error).map(drop),
            Reason::Lost(error) => response.extensions_mut().insert(error).map(drop),
            Reason::Key(error) => response.extensions_mut().insert(error).map(drop),
        };
        response
    }

    /// Lists every policy, first the one that refused: only of that one it is known what is left.
    fn add_fields(&self, headers: &mut HeaderMap) {
        let remaining = self.remaining();
        fields::refuse(headers, self.policy(), self.limit(), remaining, RETRY_AFTER);
        if self.limits.are_several() {
            let others = self.limits.others(&self.refusing);
            others.for_each(|(policy, limit)| fields::list(headers, policy, *limit));
        }
    }

    /// How many units are left for a new claim. A queue leaves none: a new claim has to join it.
    fn remaining(&self) -> Option<u32> {
        match self.reason {
            Reason::Acquire(AcquireError::Full { limit, held, .. }) => {
                Some(limit.saturating_sub(held))
            }
            Reason::Acquire(AcquireError::TimedOut | AcquireError::QueueFull) => Some(0),
            _ => None,
        }
    }
}

/// Leaves the request out, because its head may contain secrets.
impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection")
            .field("reason", &self.reason)
            .field("policy", self.policy())
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}
