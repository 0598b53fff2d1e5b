//! The lock: its promises within a process, across processes, and when processes die.

#[cfg(feature = "redis")]
mod dying;
mod every_store;
#[cfg(feature = "redis")]
mod in_redis;
#[cfg(feature = "redis")]
mod overlaps;

use std::time::Duration;
use tower_semaphore::{Lock, LockGuard};

/// Generous, because no test that uses it measures time.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// Acquires the lock, which must be free in time.
pub(crate) async fn locked(lock: &Lock) -> LockGuard {
    lock.acquire(BOUND).await.expect("it is free in time")
}
