//! The limit whose permit is readiness.

mod abandoned;
mod cooldown;
mod inner;
mod readiness;
mod refusing;
mod runtimes;
#[cfg(feature = "redis")]
mod shared;
mod stack;
