//! Markets under random load for minutes, and the memory that remains after much load. Tests run one at a time.

#![cfg(feature = "redis")]

#[cfg(target_os = "linux")]
mod market;
#[cfg(target_os = "linux")]
mod memory;
