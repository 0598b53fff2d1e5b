//! The handle.

use super::{acquire::Store, clock::after, error::Error, lease::Lease};
use crate::semaphore::{Acquire, Claim, Semaphore};
use std::{fmt, sync::Arc, time::Duration};

/// A semaphore for each key, in Redis. See the [module docs](super).
#[derive(Clone)]
pub struct RedisSemaphore(Arc<Store>);

impl RedisSemaphore {
    pub(super) fn new(store: Store) -> Self {
        Self(Arc::new(store))
    }

    /// Starts the keeper, which connects too, and learns the server's time, so that the first
    /// claims wait for neither.
    pub(super) async fn warm_up(&self) -> Result<(), Error> {
        self.0.warm_up().await
    }

    /// Refuses new claims, ends waiting ones, and releases everything that this process holds.
    /// Returns what could not be released within `bound`; the server frees it when its lease ends.
    ///
    /// The permits of holders that still run are reported lost, so call it after the server
    /// has drained. A claim whose answer is on its way is refused and released too, which takes
    /// until no command of it can run any more: a [`timeout`](super::Builder::timeout) at most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses only the answer.
    pub async fn shutdown(&self, bound: Duration) -> Vec<Unreleased> {
        let rest = self.0.shutdown(after(bound)).await;
        let unreleased = |lease: Arc<Lease>| Unreleased {
            semaphore: lease.name().to_string(),
            token: lease.token(),
        };
        rest.into_iter().map(unreleased).collect()
    }
}

/// A permit that [`RedisSemaphore::shutdown`] could not release in time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// What the names of its semaphore's keys in Redis begin with.
    pub semaphore: String,
    /// Its token; 0 if the answer to its acquire never arrived.
    pub token: u64,
}

impl Semaphore for RedisSemaphore {
    fn acquire(&self, claim: Claim) -> Acquire {
        Acquire::pending(Arc::clone(&self.0).acquire(claim))
    }
}

impl fmt::Debug for RedisSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
