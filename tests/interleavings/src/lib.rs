//! The store in memory, the lost signal, and the driver of the store in Redis, in every order in which a few threads can meet.
//!
//! The sources are those of `tower-semaphore` itself, by their paths. Only `crate::sync` differs: here
//! it holds loom's types, and every access of theirs is a point where another thread may run, or
//! where a load may see an older value, if its ordering allows that.
//!
//! There is nothing in it but tests: `cargo test --release -p tower-semaphore-interleavings`.
//!
//! A wait ends by its grant or by the drop of its future, as after a timeout, because no clock runs. Tokio's `oneshot` and
//! `Notify` are single steps, because Tokio checks them with loom itself; loom is shown the ordering that a `oneshot` brings.
//!
//! The oracles (`witness.rs`) use memory that loom does not track, so they add no ordering between threads:
//!
//! - Never more units are held than the limit.
//! - Tokens are unique, and greater than those granted before the claim began.
//! - A holder of the whole limit sees all writes of the holder before it.
//! - No thread waits for ever: no wake-up is lost, no loss is missed, and several locks do not deadlock.
//! - In the end all units are free to a claim without a wait, and idle keys beyond a shard's allowance have no entry.
//! - An entry of which something is held, or for which something waits, is not evicted.
//!
//! | scenarios | threads | executions |
//! |---|---|---|
//! | take and release, light and heavy; a limit that is lowered | 3 | 1,128 |
//! | a free unit is never refused | 2 | 7 |
//! | join, grant, leave, revoke; a heavy head; two releases; one for two | 2 and 3 | 331 |
//! | the same beside a claim that does not wait | 3 | 748 |
//! | evict beside take, join, release, in a shard | 3 | 1,343 |
//! | evict beside take, wait, leave, through a whole store | 2 | 23 |
//! | several levels locked together, in opposite orders, beside take, join, release | 2 and 3 | 482 |
//! | the driver: drops beside a lock or a claim, a grant beside its waker, a dropped carrier, a thread that sleeps or ends | 2 and 3 | 1,979, up to 3 preemptions |
//! | pause and resume beside join, take, release | 2 and 3 | 232 |
//! | resize beside take, wait, release | 2 and 3 | 4,167 |
//! | set, clear and wait of a loss | 3 | 7,437 |
//!
//! The scenarios of the driver are bounded to three preemptions; `EXHAUSTIVE=1` removes the bound.
//!
//! Loom treats a `SeqCst` access as the weaker `AcqRel`; the store has none. It does not model load buffering (a load
//! that sees a later store of another thread's program); the store decides only under a lock.

#![cfg(test)]
// The rest of the crate, which is not compiled here, uses more of the sources.
#![allow(dead_code)]
// Nothing is counted or told: these features do not exist here.
#![allow(unexpected_cfgs)]
// Loom's threads take turns on one thread, so they may share what is not `Sync`.
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
        counts::{Claiming, Held, Waiting},
        outcome::{Answered, LostBy, Outcome, Store},
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
