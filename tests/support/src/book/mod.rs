//! The locks, semaphores and markets of *Redis in Action*, chapter 6, rebuilt from its description. This crate grew
//! from them, and is measured against them. `B1` to `B10` number these programs.

mod client;
mod lock;
pub mod market;
mod semaphore;

pub use client::{Client, Clock, Pause};
pub use lock::{acquire_lock, release_lock};
pub use semaphore::{Basic, Fair, Locked};
