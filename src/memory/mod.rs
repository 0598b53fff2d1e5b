//! The store of one process.
//!
//! ```text
//! store ─> waiter ─> grant ─> shard ─> key_semaphore ─> queue ─> holders
//! ```
//!
//! - `operate`: what operators ask.
//! - `settings`: what can be set.
//! - `store`: finds the shard of a key, and answers a claim at once or with a waiter.
//! - `waiter`: a claim in the queue of its key.
//! - `grant`: units of a key that a permit holds.
//! - `shard`: a locked table of keys, which keeps some of the idle ones.
//! - `key_semaphore`: the counters of one key, and its lock.
//! - `queue`: the waiters of one key, and its permits as operators see them.
//! - `holders`: what operators see of a claim.

mod grant;
mod holders;
mod key_semaphore;
mod operate;
mod queue;
mod settings;
mod several;
mod shard;
mod store;
mod waiter;

pub use store::MemorySemaphore;

#[cfg(test)]
mod tests;
