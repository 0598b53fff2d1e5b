//! The store of one process.
//!
//! ```text
//! store ─> waiter ─> grant ─> shard ─> key_semaphore ─> queue
//! ```
//!
//! - `store`: finds the shard of a key, and answers a claim at once or with a waiter.
//! - `waiter`: a claim in the queue of its key.
//! - `grant`: units of a key that a permit holds.
//! - `shard`: a locked table of keys, which keeps some of the idle ones.
//! - `key_semaphore`: the counters of one key.
//! - `queue`: the waiters of one key.

mod grant;
mod key_semaphore;
mod queue;
mod several;
mod shard;
mod store;
mod waiter;

pub use store::MemorySemaphore;

#[cfg(test)]
mod tests;
