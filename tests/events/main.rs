//! The library's `tracing` events and spans. The tests need a separate program with one subscriber, because `tracing`
//! stores for the whole process if an event is of interest, and the first subscriber decides that.

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
