//! The store in memory, the lost signal, and the driver of the store in Redis, in every order in which a few threads can meet.
//!
//! The sources are those of `tower-semaphore` itself, by their paths. Only `crate::sync` differs: here
//! it holds loom's types, and every access of theirs is a point where another thread may run, or
//! where a load may see an older value, if its ordering allows that.
//!
//! There is nothing in it but tests: `cargo test --release -p tower-semaphore-interleavings`.

#![cfg(test)]
// The rest of the crate, which is not compiled here, uses more of the sources.
#![allow(dead_code)]
// Loom's threads take turns on one thread, so they may share what is not `Sync`.
#![allow(clippy::arc_with_non_send_sync)]

mod explore;
mod loss;
pub mod memory;
mod observe;
#[path = "../../src/redis"]
mod redis {
    #[allow(unreachable_pub, unused_imports)]
    mod core;
    #[path = "../../interleavings/src/redis/driver.rs"]
    mod driver;
    mod protocol {
        mod answer;
        mod command;
        mod id;
        pub(in crate::redis) use answer::{Acquired, Answer, Fault, Message};
        pub(in crate::redis) use command::{Command, Group, Position, Wanted};
        pub(in crate::redis) use id::{Of, PermitId, Tag};
    }
}
#[path = "../../src/semaphore/mod.rs"]
pub mod semaphore;
mod sync;
mod witness;
