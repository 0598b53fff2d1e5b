//! The store over a cluster, a primary that Sentinels name, and a connection to several nodes.

#![cfg(feature = "redis")]

mod closing;
mod cluster;
mod sentinel;
mod stalled;
#[cfg(target_os = "linux")]
mod supplied;
