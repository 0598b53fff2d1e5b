//! What the threads of the store in memory synchronize through, and what a key hashes by.
//!
//! Only imports: the workspace's `interleavings` compiles the same sources with stand-ins here, and
//! runs them through every order in which their threads can meet.

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
