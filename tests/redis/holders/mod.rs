//! Permits and waiters over Redis, from the view of the process that has them: whatever ends around
//! them, they are refreshed, released, listed or reported lost.

mod blocked;
mod common;
mod ends;
mod long_leases;
mod runtimes;
#[cfg(target_os = "linux")]
mod server_clock;
mod shutdown;
