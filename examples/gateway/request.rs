//! A client's request: its API key and its completion.

use crate::{App, error::ApiError};
use axum::{
    body::{Body, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::{
        StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE},
        request::Parts,
    },
    middleware::Next,
    response::Response,
};
use serde::Deserialize;
use std::{num::NonZeroU32, time::Instant};

const MAX_BODY_BYTES: usize = 1 << 20;

/// The JSON body of a request.
#[derive(Debug, Clone, Deserialize)]
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
    /// The tokens to reserve.
    pub(crate) estimate: u32,
    /// The request stops waiting for limits at this time.
    pub(crate) deadline: Instant,
}

/// The key in `authorization: Bearer KEY`. A real gateway would check the key.
pub(crate) struct ApiKey(pub(crate) String);

impl<S: Sync> FromRequestParts<S> for ApiKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let key = parts
            .headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, key)| scheme.eq_ignore_ascii_case("Bearer") && !key.is_empty())
            .map(|(_, key)| key);
        match key {
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
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BODY_BYTES)
        .await
        .map_err(|error| ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
    let completion: Completion = serde_json::from_slice(&body)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let estimate = app.estimates.tokens_for(&completion);
    let deadline = Instant::now() + app.settings.wait;
    // With the content type of gRPC, the layer would answer in the form of gRPC.
    parts.headers.remove(CONTENT_TYPE);
    parts.extensions.insert(ApiRequest {
        key,
        completion,
        estimate,
        deadline,
    });
    Ok(next.run(Request::from_parts(parts, Body::empty())).await)
}
