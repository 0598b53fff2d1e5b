//! Why a request is not admitted.

use crate::{
    key::KeyError,
    semaphore::{AcquireError, PermitLost},
};

/// Why a request is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
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
