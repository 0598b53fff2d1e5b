//! The library's `tracing` events and spans. The tests need a separate program with one subscriber: the interest in an
//! event is known for the whole process, and the first caller determines it.

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
