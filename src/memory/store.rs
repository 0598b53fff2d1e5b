//! The store: answers claims with a permit, a waiter or a refusal.

use super::{
    grant::{MemoryLevel, acquire_all, permit, unlinked_permit},
    keys::Keys,
    waiter::Waiter,
};
use crate::{
    observe::Store::Memory as MEMORY,
    semaphore::{Acquire, AcquireError, Claim, Claims, Few, Permit, Semaphore},
};
use std::{fmt, slice, sync::Arc};

/// A store of semaphores in this process: one for each policy and key.
///
/// The store counts only the permits of this process, and answers like the store in Redis. A permit needs no lease,
/// because it ends with its process at the latest. A key takes memory while one of its permits is held, while it is
/// [paused](crate::Operate::pause), and while time has not returned all units of a
/// [budget](crate::Claim::with_window). The store also keeps idle keys, because the next claim is likely to be for one
/// of them. It keeps a few thousand of them at most, or the number of keys in use if that is greater.
///
/// A claim that can be answered at once is answered in the call of [`acquire`](Semaphore::acquire)
/// and needs no Tokio runtime. A clone is a handle to the same store. Permits count until they end,
/// even after the last handle is dropped.
///
/// # Panics
///
/// A claim that waits panics if its future is polled outside of a Tokio runtime with time enabled.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::new();
/// let heavy = Claim::new("account-42").with_limit(5).with_weight(4);
///
/// let permit = semaphore.acquire(heavy.clone()).await.unwrap();
/// let refused = semaphore.acquire(heavy).await;
/// assert!(matches!(refused, Err(AcquireError::Full { limit: 5, held: 4, .. })));
/// # drop(permit);
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct MemorySemaphore(pub(super) Arc<Keys>);

impl MemorySemaphore {
    /// An empty store with the default settings. See [`MemorySemaphore`] for an example.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns the default settings of a store. [`Builder::build`] makes the store.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The number of semaphores, one for each policy and key, that have permits or waiters now.
    /// Takes time proportional to the number of keys in memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(5)).await;
    /// assert_eq!(semaphore.busy_keys(), 1);
    /// drop(permit);
    /// assert_eq!(semaphore.busy_keys(), 0);
    /// # }
    /// ```
    pub fn busy_keys(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.busy_keys()).sum()
    }

    fn decide(&self, claims: &Claims) -> Acquire {
        let all = claims.as_slice();
        match self.try_one(all) {
            Some(permit) => Acquire::ready(Ok(permit)).counted(MEMORY, all),
            None => self.try_or_wait(claims).counted(MEMORY, all),
        }
    }

    /// Returns a permit if the request has one limit with room, and permits are not listed: the usual case of
    /// [`acquire_all`]. It is separate from the other cases so that each value is made in its final place, without a
    /// copy.
    #[inline(always)]
    fn try_one(&self, claims: &[Claim]) -> Option<Permit> {
        let [claim] = claims else { return None };
        claim.units().ok().filter(|_| !self.0.lists_holders)?;
        let level = MemoryLevel::acquire(&self.0, claim, None).ok()?;
        Some(unlinked_permit(slice::from_ref(claim), Few::One([level])))
    }

    #[inline(never)]
    fn try_or_wait(&self, claims: &Claims) -> Acquire {
        if let Err(error) = claims.check_with_budgets() {
            return Acquire::ready(Err(error));
        }
        if let Some(full) = claims
            .into_iter()
            .find_map(|claim| self.0.refusal_by_outer_permit(claim))
        {
            return Acquire::ready(Err(full));
        }
        let may_wait = || claims.into_iter().any(|claim| claim.wait().is_some());
        let all = claims.as_slice();
        match acquire_all(&self.0, all) {
            Err(AcquireError::Full { .. } | AcquireError::Paused { .. }) if may_wait() => {
                match Waiter::begin(&self.0, claims.clone()) {
                    Ok(waiter) => Acquire::pending(waiter.wait()),
                    Err(error) => Acquire::ready(Err(error)),
                }
            }
            levels => Acquire::ready(levels.map(|levels| permit(all, levels))),
        }
    }
}

impl Semaphore for MemorySemaphore {
    #[inline]
    fn acquire_all(&self, claims: Claims) -> Acquire {
        self.decide(&claims)
    }
}

impl Default for MemorySemaphore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemorySemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("MemorySemaphore");
        shown.field("keys", &self.busy_keys()).finish()
    }
}

/// Settings of a [`MemorySemaphore`](crate::MemorySemaphore), which
/// [`MemorySemaphore::builder`](crate::MemorySemaphore::builder) returns.
///
/// # Examples
///
/// ```
/// use tower_semaphore::MemorySemaphore;
///
/// let semaphore = MemorySemaphore::builder().holders(true).max_waiting_total(1_000).build();
/// ```
#[must_use = "settings do nothing until a store is built"]
#[derive(Debug, Clone)]
pub struct Builder {
    pub(super) holders: bool,
    pub(super) max_waiting_total: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            holders: false,
            max_waiting_total: 10_000,
        }
    }
}

impl Builder {
    /// Sets whether the store lists its permits: false by default. If it does, [`usage`](crate::Operate::usage) shows
    /// who holds them, and [`revoke`](crate::Operate::revoke) can end them. A pair of acquire and release then takes
    /// about 150 ns longer, and one nanosecond more for each permit of the key. See [`Builder`] for an example.
    pub fn holders(mut self, holders: bool) -> Self {
        self.holders = holders;
        self
    }

    /// Sets how many claims may wait at a time, for all keys of the store together: 10,000 by default. Further
    /// claims that would wait are refused with [`AcquireError::Overloaded`](crate::AcquireError::Overloaded).
    /// See [`Builder`] for an example.
    pub fn max_waiting_total(mut self, max_waiting_total: u32) -> Self {
        self.max_waiting_total = max_waiting_total;
        self
    }

    /// An empty store. See [`Builder`] for an example.
    pub fn build(self) -> MemorySemaphore {
        let keys = Keys::new(self.holders, self.max_waiting_total);
        MemorySemaphore(Arc::new(keys))
    }
}
