//! A permit that changes its weight.

use super::{AcquireError, ClaimError, MAX_WEIGHT, Permit};
use std::{
    pin::pin,
    sync::atomic::Ordering::Relaxed,
    task::{Context, Waker},
};
use tokio::task::unconstrained;

impl Permit {
    /// How many units the permit holds; of several limits, of the narrowest.
    pub fn weight(&self) -> u32 {
        match self.parts() {
            [] => self.0.weight.load(Relaxed),
            [narrowest, ..] => narrowest.weight(),
        }
    }

    /// Changes how many units the permit holds: for work whose cost is known only while it runs,
    /// such as the tokens of an answer that is being streamed.
    ///
    /// A smaller weight frees units at once, and lets the next waiters in. A greater weight is
    /// granted if there is room and no claim waits; else the permit stays as it is. Several limits
    /// change together, all or none; [`levels`](Self::levels) has the permit of each, to change one
    /// alone. So it is for the limits of nested layers.
    ///
    /// # Errors
    ///
    /// - [`AcquireError::Full`] where there is no room for a greater weight.
    /// - [`AcquireError::Invalid`] for a weight of 0, above [`MAX_WEIGHT`] or above the limit, and for
    ///   a store that cannot change the weight of a permit.
    /// - [`AcquireError::Store`] if the store failed, or with [`PermitLost`](super::PermitLost) as its
    ///   source if the permit is lost or released.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the permit has its old weight or the new one. The store knows
    /// which, and a further change is right in both cases.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let claim = Claim::new("account-42").with_limit(5);
    /// let permit = semaphore.acquire(claim.clone().with_weight(5)).await.unwrap();
    ///
    /// permit.resize(3).await.unwrap();
    /// let other = semaphore.acquire(claim.with_weight(2)).await.unwrap();
    /// assert!(permit.resize(4).await.is_err());
    /// assert_eq!(permit.weight(), 3);
    /// # drop(other);
    /// # }
    /// ```
    pub async fn resize(&self, weight: u32) -> Result<(), AcquireError> {
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(ClaimError::Weight(weight).into());
        }
        let limit = self.limit();
        if weight > limit {
            return Err(ClaimError::TooHeavy { weight, limit }.into());
        }
        let answer = self.0.grant.resize(weight).await;
        answer.map_err(|error| self.named(error))?;
        self.0.weight.store(weight, Relaxed);
        Ok(())
    }

    /// The refusal of a permit of one limit names its policy, which its grant need not know.
    fn named(&self, error: AcquireError) -> AcquireError {
        match error {
            AcquireError::Full { limit, held, .. } if self.parts().is_empty() => {
                let policy = self.policy().clone();
                AcquireError::Full {
                    policy,
                    limit,
                    held,
                }
            }
            error => error,
        }
    }
}

/// First the levels that grow, from narrow to wide, because only these may be refused. If one is, those
/// that have grown shrink again.
pub(super) async fn resize_all(levels: Box<[Permit]>, weight: u32) -> Result<(), AcquireError> {
    let (grow, shrink): (Vec<_>, Vec<_>) = levels.iter().partition(|level| level.weight() < weight);
    let mut grown = Grown::default();
    for level in grow {
        let before = level.weight();
        if let Err(error) = level.resize(weight).await {
            grown.undo().await;
            return Err(error);
        }
        grown.0.push((level, before));
    }
    grown.0.clear();
    for level in shrink {
        level.resize(weight).await?;
    }
    Ok(())
}

/// Levels that have grown, and their weights before. They shrink again if the others are not asked, or
/// refuse.
#[derive(Default)]
struct Grown<'a>(Vec<(&'a Permit, u32)>);

impl Grown<'_> {
    async fn undo(&mut self) {
        while let Some((level, before)) = self.0.last() {
            // If the store fails as well, the units are freed with the permit.
            let _ = level.resize(*before).await;
            self.0.pop();
        }
    }
}

impl Drop for Grown<'_> {
    /// The change was dropped midway. The first poll frees units, because that needs no answer; and
    /// it is unconstrained, because its task may have used up its budget.
    fn drop(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for (level, before) in self.0.drain(..) {
            let _ = pin!(unconstrained(level.resize(before))).poll(&mut context);
        }
    }
}
