//! The locks, semaphores and markets of *Redis in Action*, chapter 6, built again after its
//! description: what this crate grew from, and what it is measured against.

#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod client;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod lock;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
pub(crate) mod market;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod semaphore;

#[allow(unused_imports, reason = "each benchmark uses a part of it")]
pub(crate) use client::{Client, Clock, Pause};
#[allow(unused_imports, reason = "each benchmark uses a part of it")]
pub(crate) use lock::{acquire_lock, acquire_lock_with_timeout, release_lock};
#[allow(unused_imports, reason = "each benchmark uses a part of it")]
pub(crate) use semaphore::{Basic, Fair, Locked};
