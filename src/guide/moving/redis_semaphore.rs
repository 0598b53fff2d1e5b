//! Moving from npm's redis-semaphore, when a service moves from Node.js to Rust.
//!
//! Both are leases in a sorted set, refreshed while they are held. The two do not share permits: keys and scripts
//! differ. While both run, give each its part of the limit.
//!
//! | redis-semaphore (default) | here (default) | what differs |
//! |---|---|---|
//! | `new Semaphore(redis, key, maxCount)` | [`Claim::new(key)`](crate::Claim::new)`.with_limit(maxCount)` | a store is made once; claims are values |
//! | `new Mutex(redis, key)` | [`Lock::new(store, key)`](crate::Lock::new) | with a [fencing token](super::super::recipes::locks) |
//! | `new MultiSemaphore(…, permits)` | [`with_weight`](crate::Claim::with_weight) (1) |  |
//! | `RedlockMutex`, `RedlockSemaphore` | – | one primary; [`min_replicas`](crate::redis::Builder::min_replicas) for failovers |
//! | `lockTimeout` (10 s) | [`Builder::lease`](crate::redis::Builder::lease) (10 s) | one for the whole store, measured by the server's clock |
//! | `refreshInterval` (0.8 of `lockTimeout`) | a third of a lease | for all permits of a process together |
//! | `acquireTimeout` (10 s) | [`with_wait`](crate::Claim::with_wait) (0) |  |
//! | `acquireAttemptsLimit: 1` | a claim without a wait |  |
//! | `retryInterval` (10 ms) | – | a waiter is notified by a message when it is granted |
//! | `identifier` (a UUID) | – | chosen by the store |
//! | `onLockLost` (throws) | [`Permit::lost`](crate::Permit::lost), [`is_lost`](crate::Permit::is_lost), [`OnLost`](crate::OnLost) | reported by the holder's own clock too, while Redis is away |
//! | `isAcquired` | `!permit.is_lost()` |  |
//! | `release()` | drop it, or [`release`](crate::Permit::release)`().await` | no `finally`: the drop releases it after an error or a panic too |
//! | keys `semaphore:KEY` | `PREFIX{POLICY:KEY}:held` and three more; PREFIX is `semaphore:` by default | choose another [prefix](crate::redis::Builder::prefix) beside the old keys |
//!
//! Before:
//!
//! ```text
//! const semaphore = new Semaphore(redis, 'transcoders', 8, { acquireTimeout: 60_000 })
//! await semaphore.acquire()
//! try {
//!   await work()
//! } finally {
//!   await semaphore.release()
//! }
//! ```
//!
//! After:
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tower_semaphore::{Claim, RedisSemaphore, Semaphore};
//!
//! let store = RedisSemaphore::builder().prefix("limits:").connect("redis://127.0.0.1/").await?;
//! let claim = Claim::new("transcoders").with_limit(8).with_wait(Duration::from_secs(60));
//!
//! let permit = store.acquire(claim).await?;
//! work().await;
//! drop(permit);
//! # Ok(()) }
//! # async fn work() {}
//! ```
//!
//! # Measured side by side
//!
//! (BENCHMARKS.md, "Peers": 50 contenders 4 ms apart, 5 permits, 100 ms each.)
//!
//! | | redis-semaphore | here |
//! |---|---|---|
//! | acquires and releases per second, with 1 task and with 16 | 4,309 and 49,071 | 7,578 and 56,572 |
//! | until all were served, 1,000 ms at best | 1,087 ms | 1,032 ms |
//! | commands | 1,887 | 110 |
//! | pairs of contenders served in the wrong order, of 1,225 | 342 | 1 |
//!
//! By the permits' tokens this crate granted every pair in order. The two contenders of the one pair only noticed their
//! grants in the wrong order, in a busy process.
