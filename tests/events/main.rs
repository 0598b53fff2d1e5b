//! What the library tells through `tracing`. A program of its own, with one subscriber for all: whether
//! an event is of interest is known for the whole process, and is found out by whoever is first.

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
