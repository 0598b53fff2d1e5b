//! Permits of a limit that is on trial.

use super::{Claim, Grant, Permit, Policy, Units};
use crate::observe::Held;
use std::sync::Arc;

impl Claim {
    /// The claim of a request that is admitted in any case. It takes no place from those in force among
    /// the waiters of its process.
    pub(crate) fn on_trial(mut self) -> Self {
        self.is_trial = true;
        self
    }
}

impl Permit {
    /// Whether the permit is of a layer [in shadow](crate::ConcurrencyLimitLayer::with_shadow), so that
    /// its request was admitted whether or not there was room. Such a permit is never lost, and its
    /// token is `None` unless its claim was granted. With several layers: whether all of them are in shadow.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
    /// assert!(!permit.is_shadow(), "no layer was asked");
    /// # }
    /// ```
    pub fn is_shadow(&self) -> bool {
        match self.parts() {
            [] => self.0.is_shadow,
            parts => parts.iter().all(Self::is_shadow),
        }
    }

    /// A permit that the store does not count: what it stands for may be counted beside it.
    pub(crate) fn shadow(grant: impl Grant, policy: Policy, units: Units) -> Self {
        let mut permit = Self::from_parts(grant, policy, units, 0, Held::default());
        if let Some(shared) = Arc::get_mut(&mut permit.0) {
            shared.is_shadow = true;
        }
        permit
    }
}
