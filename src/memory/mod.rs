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

// operate ─> store ─> waiter ─> grant ─> keys ─> shard ─> entry ─> queue ─> budget, holders, fair, units; limits
//
// - `operate`: usage, revocations and pauses for operators.
// - `store`: answers claims at once or with a waiter; the settings of a store.
// - `waiter`: a request in the queue of a key.
// - `grant`: units of keys that a permit holds, and how they are acquired together.
// - `keys`: finds the shard of a key.
// - `shard`: a table of entries under one lock, which keeps some of the idle ones.
// - `entry`: the semaphore of one key.
// - `budget`: what is spent and reserved of a budget.
// - `queue`: the waiters of one key, and its permits as operators see them.
// - `fair`: the order of waiters that belong to flows.
// - `holders`: what operators see of a claim.
// - `units`: the units that a permit holds of a key.
// - `limits`: the limits that operators have set.

mod budget;
mod entry;
mod fair;
mod grant;
mod holders;
mod keys;
mod limits;
mod operate;
mod queue;
mod shard;
mod store;
mod units;
mod waiter;

pub use store::{Builder, MemorySemaphore};

#[cfg(test)]
mod tests;
