//! Markets under random load for minutes, and the memory that much load leaves. One test runs at a time.

#![cfg(feature = "redis")]

#[cfg(target_os = "linux")]
mod market;
#[cfg(target_os = "linux")]
mod memory;
