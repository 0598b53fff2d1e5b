//! The lock: what it promises within a process, across processes, and when processes die.

#[cfg(feature = "redis")]
mod dying;
mod every_store;
#[cfg(feature = "redis")]
mod in_redis;
#[cfg(feature = "redis")]
mod overlaps;

use std::time::Duration;
use tower_semaphore::{Lock, LockGuard};

/// Generous: nothing that waits for it is about time.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// The lock, soon.
pub(crate) async fn locked(lock: &Lock) -> LockGuard {
    lock.acquire(BOUND).await.expect("it is free in time")
}
