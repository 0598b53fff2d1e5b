//! The store in memory: a semaphore for each policy and key, for one process.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::time::Duration;
//! use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
//!
//! let semaphore = MemorySemaphore::new();
//! let claim = Claim::new("account-42").with_limit(5).with_wait(Duration::from_secs(2));
//! let permit = semaphore.acquire(claim).await.unwrap();
//! drop(permit);
//! # }
//! ```

// store ─> waiter ─> grant ─> shard ─> key_semaphore ─> queue ─> holders
//                    keys ─> shard ─> limits
//
// - `operate`: usage and revocations for operators.
// - `store`: answers claims at once or with a waiter; the settings of a store.
// - `waiter`: a request in the queue of a key.
// - `grant`: units of keys that a permit holds, and how they are acquired together.
// - `keys`: finds the shard of a key.
// - `shard`: a locked table of keys, which keeps some of the idle ones.
// - `key_semaphore`: the counters of one key, and its lock.
// - `fair`: the order of waiters that belong to flows.
// - `queue`: the waiters of one key, and its permits as operators see them.
// - `holders`: what operators see of a claim.
// - `limits`: the limits that operators have set.

mod fair;
mod grant;
mod holders;
mod key_semaphore;
mod keys;
mod limits;
mod operate;
mod queue;
mod shard;
mod store;
mod waiter;

pub use store::{Builder, MemorySemaphore};

#[cfg(test)]
mod tests;
