//! The part of a reason that a client sees: a problem of RFC 9457, or a gRPC status.

use super::{Reason, grpc};
use crate::{
    json::JsonString,
    key::KeyError,
    semaphore::{AcquireError, ClaimError},
};
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

/// The problem that a client gets.
pub(super) struct Problem {
    status: StatusCode,
    /// The docs of [`Rejection`](crate::Rejection) name each.
    grpc_status: &'static str,
    kind: &'static str,
    title: &'static str,
    detail: Option<String>,
    /// True if the response names the policy that was violated.
    names_policy: bool,
}

impl Problem {
    pub(super) fn for_reason(reason: &Reason) -> Self {
        match reason {
            Reason::Acquire {
                error:
                    AcquireError::Invalid {
                        source: ClaimError::Nested,
                    },
            } => Self::internal(
                "two limits of the service count the request in the same semaphore: give one another policy",
            ),
            Reason::Acquire {
                error: AcquireError::Invalid { source },
            } => Self::bad_request(source.to_string()),
            Reason::Acquire {
                error: error @ AcquireError::KeyClosed { .. },
            } => Self::closed(error.to_string()),
            Reason::Acquire {
                error: error @ AcquireError::Paused { .. },
            } => Self::paused(error),
            Reason::Acquire { error } if error.is_refusal() => Self::quota_exceeded(error),
            Reason::Acquire { .. } | Reason::Lost { .. } => Self::reduced_capacity(),
            Reason::Aborted { error } => Self::aborted(error.to_string()),
            Reason::Key {
                error: KeyError::MissingExtension { .. },
            } => Self::internal("the service has not provided what the key is read from"),
            Reason::Key { error } => Self::bad_request(error.to_string()),
        }
    }

    fn quota_exceeded(error: &AcquireError) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            grpc_status: "8",
            kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
            title: match error.window() {
                Some(_) => "Too much used for now",
                None => "Too many requests in flight",
            },
            detail: None,
            names_policy: true,
        }
    }

    fn paused(error: &AcquireError) -> Self {
        Self {
            detail: Some(error.to_string()),
            ..Self::quota_exceeded(error)
        }
    }

    fn reduced_capacity() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_status: grpc::UNAVAILABLE,
            kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            title: "Requests cannot be admitted for the moment",
            detail: None,
            names_policy: false,
        }
    }

    /// The type differs from a refusal's, because the handler may have had effects.
    fn aborted(detail: String) -> Self {
        Self {
            kind: "about:blank",
            title: "Service Unavailable",
            detail: Some(detail),
            ..Self::reduced_capacity()
        }
    }

    /// An operator has closed the key, so a retry does not help.
    fn closed(detail: String) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            grpc_status: "7",
            kind: "about:blank",
            title: "Forbidden",
            detail: Some(detail),
            names_policy: true,
        }
    }

    fn bad_request(detail: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            grpc_status: "3",
            kind: "about:blank",
            title: "Bad Request",
            detail: Some(detail),
            names_policy: false,
        }
    }

    /// A mistake of the service. The log names the remedy, and the response does not.
    fn internal(detail: &str) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            grpc_status: "13",
            title: "Internal Server Error",
            ..Self::bad_request(detail.to_owned())
        }
    }

    /// The response with the problem as JSON (RFC 9457). `policy` is the refusing policy, if it is known.
    pub(super) fn response(&self, policy: Option<&str>) -> Response<String> {
        let mut json = format!(
            r#"{{"type":"{}","title":"{}","status":{}"#,
            self.kind,
            self.title,
            self.status.as_u16()
        );
        if let Some(detail) = &self.detail {
            json = format!(r#"{json},"detail":{}"#, JsonString(detail));
        }
        if let Some(policy) = policy.filter(|_| self.names_policy) {
            json = format!(r#"{json},"violated-policies":[{}]"#, JsonString(policy));
        }
        json.push('}');
        let mut response = Response::new(json);
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// The same as a gRPC status.
    pub(super) fn grpc(&self, content_type: HeaderValue) -> Response<String> {
        let message = self.detail.as_deref().unwrap_or(self.title);
        grpc::response(content_type, self.grpc_status, message)
    }
}
