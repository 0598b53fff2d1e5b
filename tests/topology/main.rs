//! The store over a cluster, and over a primary that Sentinels name.

#![cfg(feature = "redis")]

mod cluster;
mod sentinel;
