//! A client's request: its API key and the completion that it asks for.

use crate::{App, error::ApiError};
use axum::{
    body::{Body, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::{StatusCode, header::AUTHORIZATION, request::Parts},
    middleware::Next,
    response::Response,
};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU32, time::Instant};

/// The longest body of a request.
const MAX_BYTES: usize = 1 << 20;

/// The body of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Completion {
    pub(crate) model: String,
    pub(crate) prompt: String,
    pub(crate) max_tokens: NonZeroU32,
}

/// A request, with the values that its limits depend on.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    pub(crate) key: String,
    pub(crate) completion: Completion,
    /// The tokens that it reserves.
    pub(crate) estimate: u32,
    /// The end of its wait.
    pub(crate) deadline: Instant,
}

/// The key in `authorization: Bearer KEY`. A real gateway would look it up.
pub(crate) struct ApiKey(pub(crate) String);

impl<S: Sync> FromRequestParts<S> for ApiKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let value = parts.headers.get(AUTHORIZATION);
        let value = value.and_then(|value| value.to_str().ok());
        let key = value.and_then(|value| value.strip_prefix("Bearer "));
        match key.filter(|key| !key.is_empty()) {
            Some(key) => Ok(Self(key.to_owned())),
            None => Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "the API key is missing",
            )),
        }
    }
}

/// Reads a request once, for the limits and for the handler.
pub(crate) async fn read(
    State(app): State<App>,
    ApiKey(key): ApiKey,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let deadline = Instant::now() + app.settings.wait;
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BYTES).await;
    let body =
        body.map_err(|error| ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
    let completion: Completion = serde_json::from_slice(&body)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let estimate = app.estimates.reserve(&completion);
    parts.extensions.insert(ApiRequest {
        key,
        completion,
        estimate,
        deadline,
    });
    Ok(next.run(Request::from_parts(parts, Body::empty())).await)
}
