//! Runs the store in memory, the lost signal, and the driver of the store in Redis in every order of a few threads.
//!
//! The sources are the files of `tower-semaphore` itself, included by path. Only `crate::sync` differs: here it has
//! loom's types. At each access to them another thread may run, or a load may see an older value if its ordering allows
//! that.
//!
//! The crate has only tests: `cargo test --release -p tower-semaphore-interleavings`.
//!
//! Because no clock runs, a wait ends only by its grant or by the drop of its future, as after a timeout. Tokio's
//! `oneshot` and `Notify` are single steps, because Tokio itself checks them with loom. `sync/oneshot.rs` adds the
//! ordering of a `oneshot` for loom.
//!
//! The oracles (`witness.rs`) use memory that loom does not track, so they add no ordering between threads:
//!
//! - The held units never exceed the limit.
//! - Tokens are unique, and greater than all tokens that were granted before the claim began.
//! - A holder of the whole limit sees all writes of the previous holder.
//! - No thread waits endlessly: no wake-up is lost, no loss is missed, and several locks do not deadlock.
//! - In the end a claim without a wait can get all units, and idle keys beyond those that a shard keeps (64) have no
//!   entry.
//! - An entry with a permit or a waiter is not evicted.
//!
//! | scenarios | threads | executions |
//! |---|---|---|
//! | take and release, light and heavy; a limit that is lowered | 3 | 1,128 |
//! | a free unit is never refused | 2 | 7 |
//! | join, grant, leave, revoke; a heavy head; two releases; one release for two waiters | 2 and 3 | 331 |
//! | join, grant, leave beside a claim that does not wait | 3 | 748 |
//! | evict beside take, join, release, in a shard | 3 | 1,343 |
//! | evict beside take, wait, leave, through a whole store | 2 | 23 |
//! | several levels locked together, in opposite orders, beside take, join, release | 2 and 3 | 482 |
//! | the driver: drops beside a lock or a claim, a grant beside its waker, a dropped carrier (which sends a call), a thread that sleeps or ends | 2 and 3 | 1,979, up to 3 preemptions |
//! | pause and resume beside join, take, release | 2 and 3 | 232 |
//! | resize beside take, wait, release | 2 and 3 | 4,167 |
//! | set, clear and wait of a loss | 3 | 7,437 |
//!
//! The scenarios of the driver are bounded to three preemptions; `EXHAUSTIVE=1` removes the bound.
//!
//! Loom treats a `SeqCst` access as the weaker `AcqRel`, but the store in memory has no such access. Loom does not
//! model load buffering, in which a load sees a write that comes later in another thread. This does not matter here,
//! because the store in memory decides only under a lock.

#![cfg(test)]
// The other parts of the crate use more of the sources, but they are not compiled here.
#![allow(dead_code)]
// The library's features for metrics and events do not exist here, so both are off.
#![allow(unexpected_cfgs)]
// Loom's threads take turns on one thread, so they may share values that are not `Sync`.
#![allow(clippy::arc_with_non_send_sync)]

#[path = "../../../src/background.rs"]
mod background;
mod explore;
mod loss;
pub mod memory;
#[path = "../../../src/observe"]
mod observe {
    mod boundary;
    mod counts;
    pub(crate) mod events;
    mod outcome;
    pub(crate) use {
        boundary::contain,
        counts::{OutcomeCounter, PermitCounter, WaitCounter, budget},
        outcome::{Answered, BudgetUse, LostBy, Outcome, Store},
    };

    pub(crate) const IS_ON: bool = false;
}
#[path = "../../../src/redis"]
mod redis {
    #[path = "../../tests/interleavings/src/redis/driver.rs"]
    mod driver;
}
#[path = "../../../src/semaphore/mod.rs"]
#[allow(unused_imports)]
pub mod semaphore;
mod sync;
#[path = "../../../src/timer.rs"]
mod timer;
mod witness;
