//! The store over a cluster and over a primary that Sentinels name, and connectors to all kinds of servers.

#![cfg(feature = "redis")]

mod closing;
mod cluster;
mod connectors;
mod sentinel;
mod stalled;
