//! Metrics, as an exporter shows them. They need a separate program, because a process has one recorder.

mod budgets;
mod counted;
mod exposition;
#[cfg(feature = "redis")]
mod faults;
#[cfg(feature = "redis")]
mod over_redis;
#[cfg(feature = "redis")]
mod poisoned;
mod recorders;
mod storm;
mod table;
#[cfg(feature = "redis")]
mod threads;
