//! Why there is no permit.

use super::Policy;
use std::{error::Error, fmt, sync::Arc};

type BoxError = Box<dyn Error + Send + Sync>;

/// Why a claim got no permit.
///
/// A refusal, a mistake in the claim and a failure of the store are distinct variants; see
/// [`is_refusal`](Self::is_refusal). The layer puts a copy into the extensions of the response
/// with which it refuses.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let closed = Claim::new("account-42").with_limit(0);
/// let error = MemorySemaphore::new().acquire(closed).await.unwrap_err();
/// assert!(error.is_refusal());
/// assert_eq!(error.to_string(), "limit reached: 0 of 0 units are held");
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limit is reached.
    Full {
        /// The policy whose limit is reached.
        policy: Policy,
        /// The key's limit, in units.
        limit: u32,
        /// How many units were held when the store decided.
        held: u32,
    },
    /// The wait ended before the claim was granted.
    TimedOut,
    /// As many claims wait for the key as the claim allows.
    QueueFull,
    /// As many claims wait in this process, for all keys together, as the store allows.
    Overloaded,
    /// No store can grant the claim.
    Invalid(ClaimError),
    /// The store failed, so it is unknown whether there was room.
    Store(StoreError),
    /// The store is shutting down and admits no claim.
    Closed,
}

impl AcquireError {
    /// Whether the store answered, and the answer was no.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::TimedOut | Self::QueueFull)
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit, held, .. } => {
                write!(f, "limit reached: {held} of {limit} units are held")
            }
            Self::TimedOut => f.write_str("the wait for a permit is over"),
            Self::QueueFull => f.write_str("the queue is full"),
            Self::Overloaded => f.write_str("too many claims wait in this process"),
            Self::Invalid(_) => f.write_str("the claim is not valid"),
            Self::Store(_) => f.write_str("the semaphore's store failed"),
            Self::Closed => f.write_str("the semaphore is shut down"),
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::Store(error) => Some(&*error.0),
            _ => None,
        }
    }
}

impl From<ClaimError> for AcquireError {
    fn from(error: ClaimError) -> Self {
        Self::Invalid(error)
    }
}

impl From<StoreError> for AcquireError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The largest weight of a claim. A permit of weight *w* is *w* members of a set, and a store
/// must be able to write them in one short step.
pub const MAX_WEIGHT: u32 = 1_000;

/// What is wrong with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The key is empty.
    EmptyKey,
    /// The claim has no limit, and no layer gave it one.
    NoLimit,
    /// The weight is 0, or above [`MAX_WEIGHT`].
    Weight(u32),
    /// The claim is heavier than its limit, so there will never be room.
    TooHeavy {
        /// The claim's weight.
        weight: u32,
        /// The key's limit.
        limit: u32,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyKey => f.write_str("key: it is empty"),
            Self::NoLimit => f.write_str("limit: the claim has none"),
            Self::Weight(weight) => write!(f, "weight: {weight} is not within 1 to {MAX_WEIGHT}"),
            Self::TooHeavy { weight, limit } => {
                write!(f, "weight: {weight} is more than the limit of {limit}")
            }
        }
    }
}

impl Error for ClaimError {}

/// A failure of a store, as that store reports it.
///
/// [`source`](Error::source) is the store's own error; shared, so that it can be cloned into a
/// response's extensions. Two are equal when they are clones of one: errors of other libraries
/// cannot be compared.
#[derive(Debug, Clone)]
pub struct StoreError(Arc<dyn Error + Send + Sync>);

impl StoreError {
    /// Wraps a store's own error.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(Arc::from(error.into()))
    }
}

impl PartialEq for StoreError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StoreError {}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the semaphore's store failed")
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}
