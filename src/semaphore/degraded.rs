//! Permits that are admitted while their store is unavailable, and claims that must not be.

use super::{Claim, Permit};

impl Claim {
    /// Sets whether the claim is strict: it is not unless set. While the store is unavailable, a
    /// strict claim is refused, whatever the store's policy admits, and its permit is lost when its
    /// lease ends. For work that must not run twice; the claims of a [`Lock`](crate::Lock) are
    /// strict.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::Claim;
    ///
    /// let claim = Claim::new("nightly-report").with_limit(1).with_strict(true);
    /// assert!(claim.is_strict());
    /// ```
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether the claim is strict. See [`with_strict`](Self::with_strict).
    pub fn is_strict(&self) -> bool {
        self.strict
    }
}

impl Permit {
    /// Whether the permit was admitted while its store was unavailable, or kept although its lease
    /// could not be refreshed, and has no place in the store yet. Only a store that was told to
    /// admits such permits. With several limits: whether that is so for one of them.
    ///
    /// A degraded permit claims its place when the store is back. Then it has a token; until then
    /// its [`token`](Self::token) is `None`, or that of the lease that has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
    /// assert!(!permit.is_degraded(), "the memory of this process is always available");
    /// # }
    /// ```
    pub fn is_degraded(&self) -> bool {
        let grant = &self.0.grant;
        grant.is_degraded() || grant.parts().iter().any(Self::is_degraded)
    }
}
