//! How many requests are in flight, as the service itself sees it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts the requests inside, and the most that were inside at once.
#[derive(Clone, Default)]
pub struct Witness(Arc<(AtomicUsize, AtomicUsize)>);

impl Witness {
    /// The most requests that were inside at once.
    pub fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    /// Counts one more request, until the guard is dropped.
    pub fn enter(self) -> Inside {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Inside(self)
    }
}

/// One request inside.
pub struct Inside(Witness);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
