//! The refusal of a claim whose limit is reached, and how each refusal is counted.

use super::{AcquireError, Claim, Policy};
use crate::observe::Outcome;

impl AcquireError {
    /// The refusal of `claim` because there is no room: `held` units of its key are in use.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{AcquireError, Claim};
    ///
    /// let refused = AcquireError::full(&Claim::new("account-42").with_limit(5), 5);
    /// assert_eq!(refused.to_string(), "limit reached: 5 of 5 units are held");
    /// ```
    #[cold]
    pub fn full(claim: &Claim, held: u32) -> Self {
        Self::Full {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            held,
        }
    }

    /// The policy that has refused, if the error names it.
    pub(super) fn policy(&self) -> Option<&Policy> {
        match self {
            Self::Full { policy, .. } => Some(policy),
            _ => None,
        }
    }

    /// What is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Full { .. } => Outcome::Full,
            Self::TimedOut => Outcome::TimedOut,
            Self::QueueFull => Outcome::QueueFull,
            Self::Overloaded => Outcome::Overloaded,
            Self::Invalid { .. } => Outcome::Invalid,
            Self::Store { .. } => Outcome::Unavailable,
            Self::Closed => Outcome::Closed,
            Self::Revoked => Outcome::Revoked,
        }
    }
}
