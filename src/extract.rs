//! The permit as an axum extractor.

use crate::semaphore::Permit;
use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use std::{convert::Infallible, error::Error, fmt};

/// The permit of a request that a layer of this crate has admitted.
///
/// For a request that a layer may exempt, extract an `Option<Permit>`.
impl<S: Sync> FromRequestParts<S> for Permit {
    type Rejection = MissingPermit;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingPermit> {
        parts.extensions.get().cloned().ok_or(MissingPermit)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Permit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The error of a handler that extracts a [`Permit`] from a request that no layer has admitted:
/// status 500, because the service is put together wrongly.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPermit;

impl fmt::Display for MissingPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request has no permit: no limit has admitted it")
    }
}

impl Error for MissingPermit {}

impl IntoResponse for MissingPermit {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}
