//! The limit whose permit is readiness.

mod abandoned;
mod inner;
mod readiness;
mod refusing;
#[cfg(feature = "redis")]
mod shared;
mod stack;
#[path = "../layer/stores.rs"]
#[allow(dead_code, reason = "the tests of the other layer use the rest")]
mod stores;
#[path = "../support/mod.rs"]
mod support;
