//! The limit whose permit is readiness.

mod abandoned;
mod inner;
mod readiness;
mod refusing;
#[cfg(feature = "redis")]
mod shared;
mod stack;
