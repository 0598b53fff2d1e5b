//! The locks, semaphores and markets of *Redis in Action*, chapter 6, built again after its
//! description: what this crate grew from, and what it is measured against.

mod client;
mod lock;
pub mod market;
mod semaphore;

pub use client::{Client, Clock, Pause};
pub use lock::{acquire_lock, release_lock};
pub use semaphore::{Basic, Fair, Locked};
