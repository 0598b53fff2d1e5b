//! Why a request is not admitted.

use super::limits::Limit;
use crate::{
    key::KeyError,
    observe::Outcome,
    retry::Retry,
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
///     let full = matches!(rejection.reason(), Reason::Acquire { error: AcquireError::Full { .. }, .. });
///     let mut response = rejection.into_response();
///     if full {
///         *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
///     }
///     response
/// }
/// # drop(reject);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason {
    /// The semaphore granted no permit.
    #[non_exhaustive]
    Acquire {
        /// Why not.
        error: AcquireError,
    },
    /// The permit of a [`GlobalConcurrencyLimit`](crate::GlobalConcurrencyLimit) was lost between
    /// readiness and call.
    #[non_exhaustive]
    Lost {
        /// The loss.
        error: PermitLost,
    },
    /// The extractor found no key in the request, or a wrong one.
    #[non_exhaustive]
    Key {
        /// What is wrong with the request.
        error: KeyError,
    },
}

impl Reason {
    /// A permit that was lost.
    pub(crate) fn lost() -> Self {
        Self::Lost { error: PermitLost }
    }

    /// What is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Acquire { error } => error.outcome(),
            Self::Lost { .. } => Outcome::Lost,
            Self::Key { .. } => Outcome::Invalid,
        }
    }

    /// How many units are left for a new claim, if that is known. A queue leaves none: a new claim has
    /// to join it.
    pub(super) fn remaining(&self) -> Option<u32> {
        match self {
            Self::Acquire { error } => match error {
                AcquireError::Full { limit, held, .. } => Some(limit.saturating_sub(*held)),
                error => error.is_refusal().then_some(0),
            },
            _ => None,
        }
    }

    /// When to try again, in seconds; `None` if that would not help. Every rejection advances the
    /// schedule once.
    pub(super) fn retry_after(&self, refusing: &Limit, retry: &Retry) -> Option<u64> {
        match self {
            Self::Key { .. }
            | Self::Acquire {
                error: AcquireError::Invalid { .. },
            } => None,
            Self::Acquire { error } if error.is_refusal() => {
                let (policy, key) = (&refusing.policy, refusing.key);
                Some(retry.refused(policy, key, refusing.limit, refusing.weight))
            }
            Self::Acquire { .. } | Self::Lost { .. } => Some(retry.failed()),
        }
    }
}
