//! Metrics, as an exporter shows them. A program of its own, because a process has one recorder.

mod exposition;
#[cfg(feature = "redis")]
mod faults;
mod gauges;
#[cfg(feature = "redis")]
mod over_redis;
#[cfg(feature = "redis")]
mod poisoned;
mod recorders;
mod requests;
#[cfg(feature = "redis")]
mod revoked;
mod shadow;
mod storm;
mod table;
