//! The numbers of a claim, as a store reads them.

use super::{AcquireError, Claim, ClaimError, DEFAULT_MAX_WAITING, MAX_WEIGHT};
use std::time::Duration;

/// The numbers of a claim that a store can grant: 1 ≤ weight ≤ limit. [`Claim::units`](super::Claim::units) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Units {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

impl Units {
    /// How many units the key's permits may hold together. See [`Claim::units`](super::Claim::units) for an example.
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// How many of those units the claim takes. See [`Claim::units`](super::Claim::units) for an example.
    pub fn weight(self) -> u32 {
        self.weight
    }
}

/// How a claim waits. [`Claim::wait`](super::Claim::wait) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Wait {
    /// The longest time that the claim waits, greater than zero.
    pub time: Duration,
    /// How many claims may wait for the key up to this one, in the order of the queue.
    pub max_waiting: u32,
    /// How much earlier than it arrived the claim counts as arrived.
    pub head_start: Duration,
    /// Whether the limit is in shadow.
    pub(crate) is_trial: bool,
}

impl Claim {
    /// How the claim waits; `None` if it does not wait. See [`key`](Self::key) for an example.
    #[inline]
    pub fn wait(&self) -> Option<Wait> {
        let time = self.wait.filter(|wait| !wait.is_zero())?;
        Some(Wait {
            time,
            max_waiting: self.max_waiting.unwrap_or(DEFAULT_MAX_WAITING),
            head_start: self.head_start,
            is_trial: self.is_trial,
        })
    }

    /// Checks the claim, and returns the units that a store has to count. A store calls this
    /// method first.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Invalid`] for an empty key, a missing limit, a weight out of range, or a
    /// weight above the limit; [`AcquireError::Full`] for a limit of 0, which refuses every claim.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::Claim;
    ///
    /// let units = Claim::new("account-42").with_limit(5).with_weight(2).units().unwrap();
    /// assert_eq!((units.limit(), units.weight()), (5, 2));
    /// assert!(Claim::new("account-42").units().is_err(), "it has no limit");
    /// ```
    #[inline]
    pub fn units(&self) -> Result<Units, AcquireError> {
        let limit = self.limit().ok_or(ClaimError::NoLimit)?;
        let weight = self.weight();
        if self.key().is_empty() {
            return Err(ClaimError::EmptyKey.into());
        }
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(ClaimError::Weight { weight }.into());
        }
        match limit {
            0 => Err(AcquireError::full(self, 0)),
            _ if weight > limit => Err(ClaimError::TooHeavy { weight, limit }.into()),
            _ => Ok(Units { limit, weight }),
        }
    }
}
