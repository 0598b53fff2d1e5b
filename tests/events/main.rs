//! The library's `tracing` events and spans. The tests need a separate program with one subscriber, because the first
//! subscriber decides which events are of interest, and `tracing` caches that for the whole process.

#![cfg(feature = "tracing")]

#[cfg(feature = "redis")]
mod failing;
#[cfg(feature = "redis")]
mod lines;
mod log;
mod mistakes;
#[cfg(feature = "redis")]
mod secrets;
mod spans;
mod tunnels;
