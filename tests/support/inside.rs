//! How many are in flight, as the service itself sees it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts who is inside, and how many there were together at most.
#[derive(Clone, Default)]
pub(crate) struct Witness(Arc<(AtomicUsize, AtomicUsize)>);

impl Witness {
    /// How many there were together at most.
    pub(crate) fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    /// Counts one more, until it is dropped.
    pub(crate) fn enter(self) -> Inside {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Inside(self)
    }
}

/// One of them.
pub(crate) struct Inside(Witness);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
