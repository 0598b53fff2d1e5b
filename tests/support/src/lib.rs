//! Helpers that the tests and the benchmarks of tower-semaphore share.
//!
//! `fleet`, `http_requests`, `ledger`, `levels`, `pausing`, `rig`, `saturation`, `stores`, `stubs` and `wrappers` use the
//! library.
//! The other modules are oracles that judge or measure it, so they share no code with it.

#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "no user of the library sees this crate"
)]

pub mod bench;
pub mod book;
pub mod causes;
pub mod child;
#[cfg(target_os = "linux")]
pub mod clock;
pub mod daemon;
pub mod example;
#[cfg(feature = "redis")]
pub mod fleet;
mod frame;
pub mod front;
pub mod http_requests;
pub mod ids;
pub mod in_flight;
pub mod ledger;
pub mod levels;
pub mod machine;
pub mod monitor;
pub mod pausing;
pub mod port;
pub mod proxy;
pub mod redis;
pub mod resp;
#[cfg(feature = "redis")]
pub mod rig;
pub mod rng;
pub mod saturation;
pub mod script;
pub mod stall;
pub mod stores;
pub mod stubs;
pub mod wait;
pub mod wrappers;
