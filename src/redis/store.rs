//! The store in Redis, as its users see it.

use super::shared::Store;
use crate::redis::{check::Risk, clock::after, connect_error::ConnectError, protocol::name};
use crate::{
    observe::Store::Redis as REDIS,
    semaphore::{Acquire, Claim, Claims, Key, Policy, Semaphore, SemaphoreId, narrowest},
};
use std::{fmt, sync::Arc, time::Duration};

/// A store of semaphores in Redis: one for each policy and key. See the [module docs](super).
///
/// The store is a cheap handle to clone: layers, locks and background jobs share one. When the last
/// handle and the last permit are dropped, the keeper sends the releases that are pending, and ends.
///
/// # Panics
///
/// The future of [`acquire`](Semaphore::acquire) panics outside of a Tokio runtime with I/O and time
/// enabled.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_semaphore::{Claim, RedisSemaphore, Semaphore};
///
/// let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
/// let permit = semaphore.acquire(Claim::new("account-42").with_limit(5)).await?;
/// # drop(permit); Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisSemaphore(Arc<Store>);

impl RedisSemaphore {
    pub(super) fn new(store: Store) -> Self {
        Self(Arc::new(store))
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.0
    }

    /// Checks what can be known before a claim needs it, for example in a health route: whether the
    /// server answers, is a primary, is recent enough, and permits each command, key and channel
    /// that the store needs. [`Builder::connect`](super::Builder::connect) checks the same.
    ///
    /// On a cluster each node is checked. What one of them refuses is an error; one that does not answer
    /// harms its own keys only, so that is an error if no node works.
    ///
    /// Returns what works but may fail later. Takes a second at most. Runs a few
    /// scripts, `INFO`, and a connection for Pub/Sub. Calls that come while one is running share its
    /// answer, so a health route may call it as often as it is called.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::connect`](super::Builder::connect): [`ConnectError::Unavailable`] is what may pass.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run(semaphore: tower_semaphore::RedisSemaphore) {
    /// match semaphore.check().await {
    ///     Ok(risks) => risks.iter().for_each(|risk| eprintln!("warning: {risk}")),
    ///     Err(error) => eprintln!("unhealthy: {error}"),
    /// }
    /// # }
    /// ```
    pub async fn check(&self) -> Result<Vec<Risk>, ConnectError> {
        self.0.check().await
    }

    /// Refuses new claims, ends claims that wait, and releases all permits of this store. New and
    /// waiting claims fail with [`AcquireError::Closed`](crate::AcquireError::Closed).
    ///
    /// Returns the permits that could not be released within `bound`. Each of them is free when its
    /// lease ends.
    ///
    /// The permits of holders that still run are reported lost, so shut the store down after your
    /// server has drained. A claim whose answer has not arrived is refused and released too; its
    /// release is complete when no command of it can run any more, which takes a
    /// [`timeout`](super::Builder::timeout) at most.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the future can be dropped: the shutdown goes on, and only its answer is lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run(semaphore: tower_semaphore::RedisSemaphore) {
    /// let unreleased = semaphore.shutdown(std::time::Duration::from_secs(5)).await;
    /// for permit in unreleased {
    ///     eprintln!("{} is held until its lease ends", permit.semaphore);
    /// }
    /// # }
    /// ```
    pub async fn shutdown(&self, bound: Duration) -> Vec<Unreleased> {
        let unreleased = self.0.driver.shutdown(after(bound)).await.into_iter();
        let unreleased = unreleased.map(|(name, token)| Unreleased {
            semaphore: name.to_string(),
            token,
        });
        unreleased.collect()
    }
}

/// A permit that [`RedisSemaphore::shutdown`] could not release in time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// The permit's semaphore: `PREFIX{POLICY:KEY}`, which the names of its keys in Redis begin with.
    pub semaphore: String,
    /// The permit's token; 0 if the answer to its acquire never arrived.
    pub token: u64,
}

impl Semaphore for RedisSemaphore {
    fn acquire(&self, claim: Claim) -> Acquire {
        self.acquire_all(claim.into())
    }

    fn acquire_all(&self, claims: Claims) -> Acquire {
        let (policy, key) = narrowest(claims.as_slice());
        let acquire = match claims.check() {
            Ok(()) => Acquire::pending(Arc::clone(&self.0).acquire(claims)),
            Err(error) => Acquire::ready(Err(error)),
        };
        acquire.counted(REDIS, &policy, &key)
    }

    fn semaphore_id(&self, policy: &Policy, key: &Key) -> Option<SemaphoreId> {
        Some(self.0.semaphore_id(&name(&self.0.prefix, policy, key)))
    }
}

impl fmt::Debug for RedisSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSemaphore")
            .field("prefix", &self.0.prefix)
            .field("lease", &self.0.times.lease)
            .finish_non_exhaustive()
    }
}
