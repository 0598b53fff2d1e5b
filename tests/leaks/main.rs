//! Descriptors, tasks and threads. They are counted for the whole process, so one test runs at a time.

#![cfg(feature = "redis")]

mod cancelled;
#[cfg(target_os = "linux")]
mod dropped;
#[cfg(target_os = "linux")]
mod full;
