//! The permit as an axum extractor, and a rejection as an axum response.

use crate::{reject::Rejection, semaphore::Permit};
use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use std::{convert::Infallible, error::Error, fmt};

/// The permit of a request that a layer of this crate has admitted.
///
/// Where a layer may exempt a request, extract an `Option<Permit>`.
///
/// # Errors
///
/// [`MissingPermit`] if no layer has admitted the request.
///
/// # Examples
///
/// ```
/// use tower_semaphore::Permit;
///
/// async fn handler(permit: Permit) -> String {
///     format!("{} of {} left", permit.remaining(), permit.limit())
/// }
///
/// let app: axum::Router = axum::Router::new().route("/", axum::routing::get(handler));
/// # drop(app);
/// ```
impl<S: Sync> FromRequestParts<S> for Permit {
    type Rejection = MissingPermit;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingPermit> {
        parts.extensions.get().cloned().ok_or(MissingPermit)
    }
}

/// `None` if no layer has admitted the request, or if a layer has exempted it.
impl<S: Sync> OptionalFromRequestParts<S> for Permit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The error of a handler that extracts a [`Permit`] from a request that has none.
///
/// Its response has status 500, because the mistake is the service's: no layer of this crate is
/// around the handler, or the layer has exempted the request.
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

/// The [default response](Rejection::into_response), so that a handler may return a `Result<_, Rejection>`.
///
/// # Examples
///
/// ```
/// use axum::extract::{Request, State};
/// use tower_semaphore::{Claim, MemorySemaphore, Rejection, Semaphore};
///
/// async fn export(State(store): State<MemorySemaphore>, request: Request) -> Result<String, Rejection> {
///     let (parts, _body) = request.into_parts();
///     let claim = Claim::new("export").with_limit(2);
///     let permit = store.acquire(claim).await.map_err(|error| Rejection::of(&error, &parts))?;
///     Ok(format!("{} exports are left", permit.remaining()))
/// }
///
/// let app = axum::Router::new().route("/export", axum::routing::get(export));
/// # let app: axum::Router = app.with_state(MemorySemaphore::new());
/// # drop(app);
/// ```
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        IntoResponse::into_response(Self::into_response(self))
    }
}
