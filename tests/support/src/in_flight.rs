//! Counts the concurrent holders of a permit, independently of the library.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

#[derive(Debug, Default)]
struct Counts {
    now: AtomicUsize,
    most: AtomicUsize,
    begun: AtomicUsize,
}

/// A counter. Clones share their counts.
#[derive(Debug, Default, Clone)]
pub struct InFlight(Arc<Counts>);

/// Counts as one until it is dropped.
#[derive(Debug)]
pub struct One(InFlight);

impl InFlight {
    pub fn begin(&self) -> One {
        self.0.begun.fetch_add(1, SeqCst);
        let now = self.0.now.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(now, SeqCst);
        One(self.clone())
    }

    /// The highest count so far.
    pub fn most(&self) -> usize {
        self.0.most.load(SeqCst)
    }

    /// Restarts the highest count from the present count.
    pub fn restart(&self) {
        self.0.most.store(self.0.now.load(SeqCst), SeqCst);
    }

    /// The number of counted begins.
    pub fn begun(&self) -> usize {
        self.0.begun.load(SeqCst)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.now.fetch_sub(1, SeqCst);
    }
}
