//! Stores that never grant, or grant what does not last.

use std::{
    future::{pending, ready},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};
use tower_semaphore::{
    Acquire, AcquireError, Claim, Permit, Semaphore,
    semaphore::{BoxFuture, Grant, Loss, StoreError},
};

/// A store that cannot be reached.
pub(crate) struct Broken;

impl Semaphore for Broken {
    fn acquire(&self, _: Claim) -> Acquire {
        Acquire::ready(Err(StoreError::new("connection refused").into()))
    }
}

/// A store that is shut down.
pub(crate) struct Closed;

impl Semaphore for Closed {
    fn acquire(&self, _: Claim) -> Acquire {
        Acquire::ready(Err(AcquireError::Closed))
    }
}

/// A store that must not be asked.
pub(crate) struct Unasked;

impl Semaphore for Unasked {
    fn acquire(&self, claim: Claim) -> Acquire {
        panic!("asked for {claim:?}")
    }
}

/// A store that keeps everybody waiting, and counts who does.
#[derive(Clone, Default)]
pub(crate) struct Slow(Arc<AtomicUsize>);

impl Slow {
    pub(crate) fn waiting(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Semaphore for Slow {
    fn acquire(&self, _: Claim) -> Acquire {
        self.0.fetch_add(1, Ordering::SeqCst);
        let waiter = Waiter(self.clone());
        Acquire::pending(async move {
            let _waiter = waiter;
            pending().await
        })
    }
}

struct Waiter(Slow);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A store that grants everything, and loses the last permit when it is told to.
#[derive(Clone, Default)]
pub(crate) struct Fickle(Arc<Mutex<Weak<Loss>>>);

impl Fickle {
    pub(crate) fn lose(&self) {
        let lent = self.0.lock().expect("no panic").upgrade();
        lent.expect("a permit that is out").set();
    }

    /// Whether the last permit has not come back.
    pub(crate) fn is_out(&self) -> bool {
        self.0.lock().expect("no panic").strong_count() > 0
    }
}

impl Semaphore for Fickle {
    fn acquire(&self, claim: Claim) -> Acquire {
        let loss = Arc::new(Loss::default());
        *self.0.lock().expect("no panic") = Arc::downgrade(&loss);
        Acquire::ready(claim.units().map(|units| Permit::new(Lent(loss), units, 1)))
    }
}

/// What can be lost.
struct Lent(Arc<Loss>);

impl Grant for Lent {
    fn token(&self) -> u64 {
        0
    }

    fn loss(&self) -> &Loss {
        &self.0
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(false))
    }
}
