//! The layer whose services take a permit to become ready.

mod abandoned;
mod cooldown;
mod inner;
mod readiness;
mod refusing;
mod runtimes;
#[cfg(feature = "redis")]
mod shared;
mod stack;
