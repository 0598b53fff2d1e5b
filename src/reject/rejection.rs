//! A request that is not admitted, and its response.

use super::{
    Reason, RejectionBody, RequestLimit, RequestLimits,
    drain::{ConnectionHeader, Drain},
    grpc,
    problem::Problem,
};
use crate::{
    fields::Fields,
    retry::Retry,
    semaphore::{AcquireError, BoxError, Policy},
};
use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderValue, Response,
    header::{CACHE_CONTROL, CONNECTION, RETRY_AFTER},
    request::Parts,
};
use http_body::Body;
use std::{fmt, sync::Arc, time::Duration};

/// A function that makes the response of a rejection.
pub(crate) type Reject = dyn Fn(Rejection) -> Response<RejectionBody> + Send + Sync;

/// The function of a layer whose user sets no other.
pub(crate) fn default_rejection(rejection: Rejection) -> Response<RejectionBody> {
    rejection.into_response().map(RejectionBody::Text)
}

/// Boxes the response's body of a user's function.
pub(crate) fn reject<F, B>(reject: F) -> Arc<Reject>
where
    F: Fn(Rejection) -> Response<B> + Send + Sync + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Arc::new(move |rejection| reject(rejection).map(RejectionBody::boxed))
}

/// Marks the response to a layer's rejection, also if a user's function has made the response.
#[derive(Clone)]
struct Rejected;

/// True for a rejection by a layer of this process, or by a handler with [`Rejection::of`].
pub(crate) fn is_rejection(response: &Extensions) -> bool {
    response.get::<Rejected>().is_some() || response.get::<AcquireError>().is_some()
}

/// Makes the response to a refused request, marks it, and forbids caches to store it.
pub(crate) fn respond(reject: &Reject, rejection: Rejection) -> Response<RejectionBody> {
    let connection = rejection.connection;
    let mut response = reject(rejection);
    response.extensions_mut().insert(Rejected);
    let headers = response.headers_mut();
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(CACHE_CONTROL).or_insert(no_store);
    if connection == ConnectionHeader::Close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A request that is not admitted, or that ends before its response, with the reason.
///
/// A layer answers with [`into_response`](Self::into_response) unless
/// [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection) sets another function:
///
/// | reason | status | problem type |
/// |---|---|---|
/// | limit reached, queue full, wait over | 429, `Retry-After` | `quota-exceeded` |
/// | the key is [paused](crate::AcquireError::Paused) | 429, `Retry-After` | `quota-exceeded` |
/// | an operator has [closed the key](crate::AcquireError::KeyClosed) | 403 | `about:blank` |
/// | the store failed, is overloaded or is shut down | 503, `Retry-After` | `temporary-reduced-capacity` |
/// | a global limit's permit was lost between readiness and call | 503, `Retry-After` | `temporary-reduced-capacity` |
/// | the permit was lost before the response's head, under [`OnLost::Abort`](crate::OnLost::Abort) | 503, `Retry-After` | `about:blank` |
/// | the request names no key, or a wrong one | 400 | `about:blank` |
/// | the service has not provided what the key is read from ([`KeyError::MissingExtension`](crate::KeyError::MissingExtension)) | 500 | `about:blank` |
/// | a limit outside counts the request in the same semaphore ([`ClaimError::Nested`](crate::semaphore::ClaimError::Nested)) | 500 | `about:blank` |
/// | no store can grant the claim ([`AcquireError::Invalid`](crate::AcquireError::Invalid)) | 400 | `about:blank` |
///
/// The RateLimit fields are added to every response with a `Retry-After`. In the `RateLimit` field of a refusal, `r` is
/// the number of units that are left for a new claim, or 0 if claims wait in the queue. `t` is the same number of
/// seconds as `Retry-After`. If you change only `Retry-After`, clients follow it, because by the draft it takes
/// precedence. If the store failed or a permit was lost, the response has no `RateLimit` field.
///
/// The body is a problem of RFC 9457 with the types of the RateLimit draft. The body of a 500 does not name the type of
/// the missing extension or the nested limits; the log does. The response's extensions contain the
/// reason: an [`AcquireError`](crate::AcquireError), a [`PermitLost`](crate::PermitLost) or a
/// [`KeyError`](crate::KeyError).
///
/// The layer adds `Cache-Control: no-store` to every refusal without a `Cache-Control`, even if your own function makes
/// the refusal.
///
/// # Uploads
///
/// Over HTTP/1 the layer reads the rest of a refused request's body, so that the client finds the response. The
/// response does not wait for this. [`with_max_drain`](crate::ConcurrencyLimitLayer::with_max_drain) sets how many
/// bytes are read. If the request announces a longer body, the response has `Connection: close`.
///
/// # gRPC
///
/// A request counts as gRPC or gRPC-Web if it is a POST with such a content type. Over HTTP/2, gRPC also needs
/// `te: trailers`. The default response has status 200, no body, the same fields, and a
/// `grpc-status` in the head (*Trailers-Only*): 8 (`RESOURCE_EXHAUSTED`) for 429, 14 (`UNAVAILABLE`)
/// for 503, 7 (`PERMISSION_DENIED`) for 403, 3 (`INVALID_ARGUMENT`) for 400, 13 (`INTERNAL`) for 500. A refused call
/// was not processed, so it may be retried. A call with the message `the permit was lost` had begun.
/// Generated clients see the fields as metadata of the status.
///
/// - Beside `Retry-After` the response has `grpc-retry-pushback-ms`, the same time in milliseconds. A client whose
///   service config has a `retryPolicy` with this status in `retryableStatusCodes` waits for that time. Otherwise it
///   would use a backoff that is unaware of the limit. Other clients, including tonic's, ignore it.
/// - A missing key is not a missing credential, so its status is not 16 (`UNAUTHENTICATED`). If your key is a
///   credential, replace the `grpc-status` with [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection).
/// - A page of another origin can read a gRPC-Web status only if CORS exposes the headers `grpc-status` and
///   `grpc-message`.
///
/// # When to try again
///
/// `Retry-After` is the next free slot in the schedule of the key, in whole seconds, at least 1:
///
/// - The first slot is one *hold* away: the mean time for which recent permits of the key were held. From then on the
///   slots are as frequent as the limit allows at this hold, with a margin, because holds are random.
/// - Each refusal takes a slot, so clients that are refused together return one after the other. No slot is reserved.
/// - The [flows](crate::Claim::with_flow) of a key share its slots by their shares.
/// - After a failure of the store or the loss of a permit, clients return ten in a second.
/// - A [pause](crate::AcquireError::Paused) has no schedule: `Retry-After` is the rest of the pause, rounded up.
///
/// A layer knows only the permits of its process, and has schedules for 4,096 keys. Beyond these a key's clients get
/// its first slot.
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
    refusing: RequestLimit,
    limits: RequestLimits,
    parts: Parts,
    /// In seconds.
    retry_after: Option<u64>,
    /// `None` if the policy that refused is unknown.
    fields: Option<Arc<Fields>>,
    connection: ConnectionHeader,
}

impl Rejection {
    /// `limits` are the limits of the claims. A custom store may refuse under a limit that is not among them.
    pub(crate) fn new(
        reason: Reason,
        mut limits: RequestLimits,
        parts: Parts,
        retry: &Retry,
        fields: &Arc<Fields>,
    ) -> Self {
        let refusing = match &reason {
            Reason::Acquire { error } => limits.refusing(error),
            _ => limits.narrowest().clone(),
        };
        Self {
            retry_after: reason.retry_after(&refusing, retry),
            reason,
            refusing,
            limits,
            connection: ConnectionHeader::KeepAlive,
            parts,
            fields: Some(Arc::clone(fields)),
        }
    }

    /// The rejection of a request whose handler has acquired no permit, in the form that the layers' rejections have.
    /// With the feature `axum` it is a response: it implements `IntoResponse`.
    ///
    /// [`retry_after`](Self::retry_after) is that of the [error](AcquireError::retry_after), because only a layer has a
    /// schedule. The response has the RateLimit fields if the error names a policy. Nothing reads the rest of the
    /// request's body.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Response, request::Parts};
    /// use tower_semaphore::{Claim, MemorySemaphore, Rejection, Semaphore};
    ///
    /// async fn export(store: &MemorySemaphore, parts: Parts) -> Response<String> {
    ///     let claim = Claim::new("account-42").with_policy("export").with_limit(1);
    ///     match store.acquire(claim).await {
    ///         Ok(_permit) => Response::new("rows".to_owned()),
    ///         Err(error) => Rejection::of(&error, &parts).into_response(),
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let store = MemorySemaphore::new();
    /// # let claim = Claim::new("account-42").with_policy("export").with_limit(1);
    /// # let _held = store.acquire(claim).await.unwrap();
    /// # let (parts, ()) = http::Request::new(()).into_parts();
    /// let refused = export(&store, parts).await;
    /// assert_eq!(refused.status(), 429);
    /// assert_eq!(refused.headers()["ratelimit"], "\"export\";r=0;t=1");
    /// # }
    /// ```
    pub fn of(error: &AcquireError, parts: &Parts) -> Self {
        let (policy, limit) = (error.policy().cloned(), error.limit().unwrap_or_default());
        let fields = policy.clone().map(|policy| Fields::new(policy, limit));
        let limits = RequestLimits::one(policy.unwrap_or_default(), limit, error.window());
        Self {
            retry_after: error.retry_after().map(|time| time.as_secs()),
            reason: Reason::Acquire {
                error: error.clone(),
            },
            refusing: limits.narrowest().clone(),
            limits,
            parts: parts.clone(),
            fields: fields.map(Arc::new),
            connection: ConnectionHeader::KeepAlive,
        }
    }

    /// Reads the rest of the request's body if that helps the client.
    pub(crate) fn drain<B>(mut self, body: B, drain: Drain) -> Self
    where
        B: Body + Send + 'static,
    {
        self.connection = drain.take(&self.parts, body);
        self
    }

    /// The reason why the request is not admitted, or why it ends.
    ///
    /// # Examples
    ///
    /// See [`Reason`].
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The policy under which the request was not admitted. With several policies, it is the policy that refused.
    /// [`Policy::DEFAULT`] if it is unknown.
    ///
    /// # Examples
    ///
    /// ```
    /// fn text(rejection: &tower_semaphore::Rejection) -> String {
    ///     let (path, policy) = (rejection.parts().uri.path(), rejection.policy());
    ///     let limit = rejection.limit();
    ///     match rejection.retry_after() {
    ///         Some(time) => format!("{path}: the limit of {policy} is {limit}, come back in {time:?}"),
    ///         None => format!("{path}: do not come back"),
    ///     }
    /// }
    /// # drop(text);
    /// ```
    pub fn policy(&self) -> &Policy {
        &self.refusing.policy
    }

    /// The limit of that policy, in units. See [`policy`](Self::policy) for an example.
    pub fn limit(&self) -> u32 {
        self.refusing.limit
    }

    /// The time after which the client should try again, in whole seconds. `None` if the request itself is wrong, so
    /// that trying again would not help. See [the rule](Self#when-to-try-again), and [`policy`](Self::policy) for an
    /// example.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }

    /// The request's head. It has no extensions if the reason is [`Reason::Aborted`]. See [`policy`](Self::policy)
    /// for an example.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The default response. See [`Rejection`] for its form and for an example.
    pub fn into_response(self) -> Response<String> {
        let problem = Problem::for_reason(&self.reason);
        let grpc = grpc::content_type(&self.parts);
        let mut response = match grpc {
            Some(content_type) => problem.grpc(content_type.clone()),
            None => problem.response(self.fields.is_some().then(|| self.policy().as_str())),
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            self.add_fields(headers, seconds);
        }
        if grpc.is_some() {
            grpc::push_back(headers);
        }
        match self.reason {
            Reason::Acquire { error } => response.extensions_mut().insert(error).map(drop),
            Reason::Lost { error } | Reason::Aborted { error } => {
                response.extensions_mut().insert(error).map(drop)
            }
            Reason::Key { error } => response.extensions_mut().insert(error).map(drop),
        };
        response
    }

    /// Lists every policy, beginning with the policy that refused. The remaining units are known only for that policy.
    fn add_fields(&self, headers: &mut HeaderMap, retry_after: u64) {
        headers.insert(RETRY_AFTER, retry_after.into());
        let Some(fields) = &self.fields else {
            return;
        };
        let remaining = self.reason.remaining();
        let refusing = (self.policy().as_str(), self.limit(), self.refusing.window);
        fields.append_refusal(headers, refusing, remaining, retry_after);
        if self.limits.are_several() {
            let others = self.limits.others(&self.refusing);
            others.for_each(|other| {
                fields.append_policy(headers, other.policy.as_str(), other.limit, other.window);
            });
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
