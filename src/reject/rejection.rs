//! A request that is not admitted, and its response.

use super::{
    Reason, RejectionBody,
    problem::{Problem, grpc_content_type},
};
use crate::{
    fields,
    semaphore::{AcquireError, Policy},
};
use bytes::Bytes;
use http::{Response, request::Parts};
use http_body::Body;
use std::{error::Error, fmt, sync::Arc};

/// Seconds until a client should try again. It is unknown when a holder will be done; a second is
/// the least that can be said.
const RETRY_AFTER: u64 = 1;

/// Makes the response of a rejection.
pub(crate) type Reject = dyn Fn(Rejection) -> Response<RejectionBody> + Send + Sync;

/// The response that a layer gives unless its user sets another.
pub(crate) fn default_rejection(rejection: Rejection) -> Response<RejectionBody> {
    rejection.into_response().map(RejectionBody::Text)
}

/// The response that a user makes.
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
/// [`into_response`](Self::into_response) is what the layer answers unless
/// [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection) sets something else:
///
/// | reason | status | problem type |
/// |---|---|---|
/// | limit reached, queue full, wait over | 429, `Retry-After` | `quota-exceeded` |
/// | the store failed, is overloaded or is shut down | 503, `Retry-After` | `temporary-reduced-capacity` |
/// | the request names no key, or a wrong one | 400 | `about:blank` |
/// | the claim is one that no store can grant | 400 | `about:blank` |
///
/// A refusal's `RateLimit` field says what is left for a new claim, which is nothing behind a queue,
/// and as `t` the same number of seconds as `Retry-After`. A response that changes only
/// `Retry-After` stays right: by the draft it takes precedence. A failed store leaves the field out.
///
/// The body is a problem of RFC 9457 with the types of the RateLimit draft. A gRPC request gets
/// status 200 with `grpc-status` 8, 14 or 3 instead. The reason itself, an [`AcquireError`], a
/// [`PermitLost`](crate::PermitLost) or a [`KeyError`](crate::KeyError), lies in the response's extensions.
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
    policy: Policy,
    limit: u32,
    parts: Parts,
}

impl Rejection {
    /// `policy` and `limit` are those of the claim. A store of several limits may refuse under
    /// another one.
    pub(crate) fn new(reason: Reason, policy: Policy, limit: u32, parts: Parts) -> Self {
        let (policy, limit) = match &reason {
            Reason::Acquire(AcquireError::Full { policy, limit, .. }) => (policy.clone(), *limit),
            _ => (policy, limit),
        };
        Self {
            reason,
            policy,
            limit,
            parts,
        }
    }

    /// Why the request is not admitted.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The policy that applied.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The limit that applied, in units.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The request, without its body.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The default response.
    pub fn into_response(self) -> Response<String> {
        let problem = Problem::of(&self.reason);
        let mut response = match grpc_content_type(&self.parts.headers) {
            Some(content_type) => problem.grpc(content_type.clone()),
            None => problem.response(&self.policy),
        };
        if problem.retry {
            let (headers, remaining) = (response.headers_mut(), self.remaining());
            fields::refuse(headers, &self.policy, self.limit, remaining, RETRY_AFTER);
        }
        match self.reason {
            Reason::Acquire(error) => response.extensions_mut().insert(error).map(drop),
            Reason::Lost(error) => response.extensions_mut().insert(error).map(drop),
            Reason::Key(error) => response.extensions_mut().insert(error).map(drop),
        };
        response
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

/// Without the request, which may hold secrets.
impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection")
            .field("reason", &self.reason)
            .field("policy", &self.policy)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
