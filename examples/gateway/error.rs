//! Error responses, with the JSON object that clients of completion APIs expect.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tower_semaphore::{
    AcquireError, Reason, Rejection,
    semaphore::{ClaimError, StoreError},
};

const UNAVAILABLE: &str = "no request can be admitted now";

pub(crate) struct ApiError {
    status: StatusCode,
    headers: HeaderMap,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            message: message.into(),
        }
    }
}

/// The response to a request that is not admitted. It has the status and headers of the default response, except the
/// content type.
impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let message = match rejection.reason() {
            Reason::Key { error, .. } => error.to_string(),
            Reason::Acquire { error, .. } => refusal_message(error),
            _ => UNAVAILABLE.to_owned(),
        };
        let (head, _) = rejection.into_response().into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            message,
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(_: StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE)
    }
}

/// Returns the message for the client. The details of a store's failure are for operators.
fn refusal_message(error: &AcquireError) -> String {
    match error {
        // Only an estimate of `max_tokens` can exceed a limit: see `Estimates::tokens_for`.
        AcquireError::Invalid {
            source: ClaimError::TooHeavy { weight, limit, .. },
            ..
        } => format!("max_tokens: {weight} is more than {limit}, the tokens per minute"),
        AcquireError::Invalid { source, .. } => source.to_string(),
        _ => match error.policy() {
            Some(policy) => format!("{policy}: {error}"),
            None => UNAVAILABLE.to_owned(),
        },
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        let error = json!({"error": {"type": kind, "code": kind, "message": self.message}});
        let mut headers = self.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (self.status, headers, error.to_string()).into_response()
    }
}
