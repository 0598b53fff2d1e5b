//! Why a request is not admitted.

use crate::{
    key::KeyError,
    semaphore::{AcquireError, PermitLost},
};

/// Why a request is not admitted, as [`Rejection::reason`](crate::Rejection::reason) returns it.
///
/// # Examples
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_semaphore::{AcquireError, Reason, Rejection};
///
/// fn reject(rejection: Rejection) -> Response<String> {
///     let full = matches!(rejection.reason(), Reason::Acquire(AcquireError::Full { .. }));
///     let mut response = rejection.into_response();
///     if full {
///         *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
///     }
///     response
/// }
/// # drop(reject);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The semaphore granted no permit.
    Acquire(AcquireError),
    /// The permit of a [`GlobalConcurrencyLimit`](crate::GlobalConcurrencyLimit) was lost between
    /// readiness and call.
    Lost(PermitLost),
    /// The extractor found no key in the request, or a wrong one.
    Key(KeyError),
}
