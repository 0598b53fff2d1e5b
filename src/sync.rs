//! The locks and atomics of the store in memory, and the hasher of keys.
//!
//! This file has only imports, so that the workspace's `interleavings` can compile the same sources with stand-ins for
//! them. It runs all interleavings of their threads.

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use std::{
    hash::RandomState,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, fence},
    },
};
pub(crate) use tokio::sync::oneshot;

#[cfg(feature = "redis")]
pub(crate) use {futures_util::task::AtomicWaker, std::sync::atomic::AtomicUsize};
