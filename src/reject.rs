//! From a refusal to a response.

use crate::{
    fields,
    key::KeyError,
    semaphore::{AcquireError, PermitLost, Policy},
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::fmt::{self, Write};

/// What makes a response of a rejection.
pub(crate) type Reject = dyn Fn(Rejection) -> Response<Bytes> + Send + Sync;

/// A request that is not admitted, and why.
///
/// [`into_response`](Self::into_response) is what the layer answers unless
/// [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection) says otherwise:
///
/// | reason | status | problem type |
/// |---|---|---|
/// | the limit is reached | 429, `Retry-After` | `quota-exceeded` |
/// | the store failed or is shut down | 503, `Retry-After` | `temporary-reduced-capacity` |
/// | the request names no key, or a wrong one | 400 | `about:blank` |
///
/// The body is a problem of RFC 9457 with the types of the RateLimit draft. A gRPC request gets
/// status 200 with `grpc-status` 8, 14 or 3 instead. The reason itself, an
/// [`AcquireError`] or a [`KeyError`], lies in the response's extensions.
#[derive(Debug, Clone)]
pub struct Rejection {
    reason: Reason,
    policy: Policy,
    limit: u32,
    grpc: Option<HeaderValue>,
}

/// Why a request is not admitted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason {
    /// The semaphore gave no permit.
    Acquire(AcquireError),
    /// The permit of a [`GlobalConcurrencyLimit`](crate::GlobalConcurrencyLimit) was lost between
    /// readiness and call.
    Lost(PermitLost),
    /// The request names no key, or a wrong one.
    Key(KeyError),
}

impl Rejection {
    pub(crate) fn new<B>(reason: Reason, policy: Policy, limit: u32, request: &Request<B>) -> Self {
        Self {
            reason,
            policy,
            limit,
            grpc: grpc(request.headers()).cloned(),
        }
    }

    /// Why.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// Under which policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The limit that applied, in units.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The default response.
    pub fn into_response(self) -> Response<Bytes> {
        let verdict = Verdict::of(&self.reason);
        let mut response = match &self.grpc {
            Some(content_type) => verdict.grpc(content_type.clone()),
            None => verdict.problem(&self.policy),
        };
        self.add_fields(response.headers_mut(), &verdict);
        match self.reason {
            Reason::Acquire(error) => response.extensions_mut().insert(error).map(drop),
            Reason::Lost(error) => response.extensions_mut().insert(error).map(drop),
            Reason::Key(error) => response.extensions_mut().insert(error).map(drop),
        };
        response
    }

    fn add_fields(&self, headers: &mut HeaderMap, verdict: &Verdict) {
        let remaining = match self.reason {
            Reason::Acquire(AcquireError::Full { limit, held }) => Some(limit.saturating_sub(held)),
            _ => None,
        };
        if verdict.retry {
            // Nobody knows when a holder will be done: a second is the least that can be said.
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            fields::append(headers, &self.policy, self.limit, remaining);
        }
    }
}

/// How a reason is told to a client.
struct Verdict {
    status: StatusCode,
    grpc_status: &'static str,
    kind: &'static str,
    title: &'static str,
    detail: Option<String>,
    violated: bool,
    retry: bool,
}

impl Verdict {
    fn of(reason: &Reason) -> Self {
        match reason {
            Reason::Acquire(AcquireError::Invalid(error)) => Self::bad_request(error.to_string()),
            Reason::Acquire(error) if error.is_refusal() => Self::quota_exceeded(),
            Reason::Acquire(_) | Reason::Lost(_) => Self::reduced_capacity(),
            Reason::Key(error) => Self::bad_request(error.to_string()),
        }
    }

    fn quota_exceeded() -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            grpc_status: "8",
            kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
            title: "Too many requests in flight",
            detail: None,
            violated: true,
            retry: true,
        }
    }

    fn reduced_capacity() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_status: "14",
            kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            title: "Requests cannot be admitted for the moment",
            detail: None,
            violated: false,
            retry: true,
        }
    }

    fn bad_request(detail: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            grpc_status: "3",
            kind: "about:blank",
            title: "Bad Request",
            detail: Some(detail),
            violated: false,
            retry: false,
        }
    }

    /// A problem of RFC 9457.
    fn problem(&self, policy: &str) -> Response<Bytes> {
        let mut json = format!(
            r#"{{"type":"{}","title":"{}","status":{}"#,
            self.kind,
            self.title,
            self.status.as_u16()
        );
        if let Some(detail) = &self.detail {
            json = format!(r#"{json},"detail":{}"#, Json(detail));
        }
        if self.violated {
            json = format!(r#"{json},"violated-policies":[{}]"#, Json(policy));
        }
        json.push('}');
        let mut response = Response::new(json.into());
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// A response of gRPC that is all trailers: its status travels in the head.
    fn grpc(&self, content_type: HeaderValue) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert("grpc-status", HeaderValue::from_static(self.grpc_status));
        let message = self.detail.as_deref().unwrap_or(self.title);
        let message = utf8_percent_encode(message, GRPC_MESSAGE).to_string();
        if let Ok(message) = HeaderValue::try_from(message) {
            headers.insert("grpc-message", message);
        }
        response
    }
}

/// What the gRPC protocol has percent-encoded in a `grpc-message`.
const GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// The content type of a gRPC request.
fn grpc(headers: &HeaderMap) -> Option<&HeaderValue> {
    let kind = headers.get(CONTENT_TYPE)?;
    kind.as_bytes()
        .starts_with(b"application/grpc")
        .then_some(kind)
}

/// A string of JSON, quotes included.
struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
