//! Replacements for `crate::sync`: the types that loom must see, and a hash seed that is the same in every execution.

mod atomic_waker;
mod once_lock;
pub(crate) mod oneshot;

pub(crate) use atomic_waker::AtomicWaker;
pub(crate) use loom::sync::{
    MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence},
};
pub(crate) use once_lock::OnceLock;
use std::hash::{BuildHasher, DefaultHasher};

/// Loom's mutex, without poison.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

const UNPOISONED: &str = "no thread panics while it has the lock";

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect(UNPOISONED)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(UNPOISONED)
    }
}

/// Hashes without a random seed, because each execution repeats the previous one up to the step at which they differ.
pub(crate) struct RandomState;

impl RandomState {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher::new()
    }
}
