//! Replaces the `AtomicWaker` of futures-util, which futures-util itself checks. Each call is a single step for loom.

use super::Mutex;
use std::{fmt, task::Waker};

#[derive(Default)]
pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn register(&self, waker: &Waker) {
        let old = self.0.lock().replace(waker.clone());
        drop(old);
    }

    pub(crate) fn take(&self) -> Option<Waker> {
        self.0.lock().take()
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for AtomicWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtomicWaker")
    }
}
