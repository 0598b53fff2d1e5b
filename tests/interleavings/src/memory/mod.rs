//! The store's files, and the scenarios beside them, so that they can use the files' private parts.

#[path = "../../../../src/memory/budget.rs"]
mod budget;
#[path = "../../../../src/memory/entry.rs"]
mod entry;
#[path = "../../../../src/memory/fair.rs"]
mod fair;
#[path = "../../../../src/memory/grant.rs"]
mod grant;
#[path = "../../../../src/memory/holders.rs"]
mod holders;
#[path = "../../../../src/memory/keys.rs"]
mod keys;
#[path = "../../../../src/memory/limits.rs"]
mod limits;
#[path = "../../../../src/memory/queue.rs"]
mod queue;
#[path = "../../../../src/memory/shard.rs"]
mod shard;
#[path = "../../../../src/memory/store.rs"]
mod store;
#[path = "../../../../src/memory/units.rs"]
mod units;
#[path = "../../../../src/memory/waiter.rs"]
mod waiter;

pub use store::MemorySemaphore;

mod evict;
mod fixture;
mod key;
mod levels;
mod resize;
