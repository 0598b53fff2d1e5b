//! The refusal of a claim whose limit is reached.

use super::{AcquireError, Claim};

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
}
