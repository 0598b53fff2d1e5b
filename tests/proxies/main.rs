//! Services behind nginx and HAProxy, which run as separate processes.

#![cfg(unix)]

mod cached;
mod client;
mod forwarding;
mod proxy;
#[cfg(feature = "redis")]
mod restarts;
mod service;
mod streams;
mod uploads;
mod waits;
