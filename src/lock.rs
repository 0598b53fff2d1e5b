//! A lock: a semaphore of one, with a fencing token.
//!
//! In chapter 6 of *Redis in Action* a lock is a key that one client sets and the others try to set again and again. A
//! [`Lock`] is a semaphore whose limit is 1. Claims for the lock wait in a queue, first come, first served across all
//! processes. Dropping the guard queues its release. If the process dies before the release is sent, the lock is free
//! when its lease ends. So if a process ends right after its work, await [`LockGuard::release`]. No other client can
//! free the lock, only an operator: locks count under the policy `lock`, and [`Operate`](crate::Operate) lists and
//! revokes them as it does any permit.
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::{Lock, MemorySemaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let lock = Lock::new(MemorySemaphore::new(), "item-7");
//!
//! let guard = lock.acquire(Duration::from_secs(1)).await.unwrap();
//! assert!(lock.try_acquire().await.is_err());
//!
//! assert!(guard.release().await);
//! # }
//! ```
//!
//! While the store is unavailable no lock is granted, even if the store admits other claims. A lock whose lease has
//! ended is lost. Otherwise two clients could hold the lock at the same time.
//!
//! # Not promised
//!
//! A holder that is paused for longer than its lease does not notice that another client may have acquired the lock. If
//! that can do harm, send the guard's [`token`](LockGuard::token) along to the resource that the lock protects. Let the
//! resource refuse any token that is lower than the highest token it has seen.

use crate::semaphore::{AcquireError, Claim, Key, Permit, Policy, Semaphore};
use std::{fmt, sync::Arc, time::Duration};

/// A lock of one key. See the [module docs](self).
///
/// A lock is cheap to clone. All locks of one key over one store exclude each other.
#[derive(Clone)]
#[must_use]
pub struct Lock {
    semaphore: Arc<dyn Semaphore>,
    claim: Claim,
}

impl Lock {
    /// The lock of `key` over the store `semaphore`.
    ///
    /// With an empty key every acquire fails with [`AcquireError::Invalid`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Lock, MemorySemaphore};
    ///
    /// let store = MemorySemaphore::new();
    /// let (apple, pear) = (Lock::new(store.clone(), "apple"), Lock::new(store, "pear"));
    /// # drop((apple, pear));
    /// ```
    pub fn new(semaphore: impl Semaphore, key: impl Into<Key>) -> Self {
        Self {
            semaphore: Arc::new(semaphore),
            claim: Claim::new(key)
                .with_limit(1)
                .with_policy(Policy::LOCK)
                .with_strict(true),
        }
    }

    /// Acquires the lock, and waits in its queue for up to `timeout` if it is not free. With a
    /// `timeout` of zero the lock is acquired only if it is free and its queue is empty.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when the lock was not granted in time;
    /// [`AcquireError::QueueFull`] when
    /// [`DEFAULT_MAX_WAITING`](crate::semaphore::DEFAULT_MAX_WAITING) claims wait for the lock; and
    /// the failures of the store: [`AcquireError::Store`], [`AcquireError::Overloaded`] and
    /// [`AcquireError::Closed`].
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with time enabled, if the store is in Redis or the lock is not
    /// free.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue, so the next claim joins at its end. If the lock was
    /// granted already, it is freed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration; use tower_semaphore::{Lock, MemorySemaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let lock = Lock::new(MemorySemaphore::new(), "item-7");
    /// let guard = lock.acquire(Duration::from_secs(1)).await.unwrap();
    /// let token = guard.token();
    /// drop(guard);
    /// assert!(lock.acquire(Duration::from_secs(1)).await.unwrap().token() > token);
    /// # }
    /// ```
    pub async fn acquire(&self, timeout: Duration) -> Result<LockGuard, AcquireError> {
        let claim = self.claim.clone().with_wait(timeout);
        let answer = self.semaphore.acquire(claim).await;
        answer.map(LockGuard).map_err(|error| match error {
            // A claim with a wait of zero does not wait, so its refusal is `Full`.
            AcquireError::Full {
                policy,
                limit,
                semaphore,
                ..
            } => AcquireError::TimedOut {
                policy,
                limit,
                window: None,
                semaphore,
            },
            error => error,
        })
    }

    /// Acquires the lock if it is free and its queue is empty.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Full`] when the lock is held or claims wait for it, and the failures of the
    /// store: [`AcquireError::Store`] and [`AcquireError::Closed`].
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with time enabled, if the store is in Redis.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: if the lock was granted, it is freed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tower_semaphore::{AcquireError, Lock, MemorySemaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let lock = Lock::new(MemorySemaphore::new(), "item-7");
    /// let _guard = lock.try_acquire().await.unwrap();
    /// assert!(matches!(lock.try_acquire().await, Err(AcquireError::Full { .. })));
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<LockGuard, AcquireError> {
        self.semaphore
            .acquire(self.claim.clone())
            .await
            .map(LockGuard)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", self.claim.key())
            .finish_non_exhaustive()
    }
}

/// Holds a [`Lock`]. Dropping the guard queues its release. If the process is about to end, await
/// [`release`](Self::release) instead, because a queued release may not be sent.
///
/// # Examples
///
/// ```
/// # use tower_semaphore::{Lock, MemorySemaphore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let lock = Lock::new(MemorySemaphore::new(), "item-7");
/// let guard = lock.try_acquire().await.unwrap();
/// let written = tokio::select! {
///     () = write(guard.token()) => true,
///     () = guard.lost() => false,
/// };
/// assert!(written && !guard.is_lost());
/// assert!(guard.release().await, "it was held all the time");
/// # }
/// # async fn write(_: u64) {}
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard frees the lock"]
pub struct LockGuard(Permit);

impl LockGuard {
    /// The fencing token: greater than that of every earlier holder. See [`LockGuard`] for an
    /// example.
    ///
    /// A lock that was lost and granted again has a new token. The token is 0 over a custom store that gives no tokens.
    pub fn token(&self) -> u64 {
        self.0.token().unwrap_or_default()
    }

    /// True if the lease has ended, so that another client may hold the lock. See [`LockGuard`] for an example.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits until the lock is lost. Never completes if that does not happen. See [`LockGuard`] for
    /// an example.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// Frees the lock, and reports whether it was still held. See [`LockGuard`] for an example.
    ///
    /// While the store cannot be reached, the answer may take as long as the lease. The lock is free then in any case,
    /// because its lease has ended.
    ///
    /// # Cancel safety
    ///
    /// The call itself queues the release, so dropping the future loses only the answer.
    pub fn release(self) -> impl Future<Output = bool> + Send + 'static {
        self.0.release()
    }
}
