//! A store that keeps book of what was granted and what came back.

use std::{
    collections::HashMap,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tower_semaphore::{
    Acquire, AcquireError, Claim, Key, Permit, Semaphore,
    semaphore::{BoxFuture, Grant, Loss},
};

/// A store for permits of weight 1. A clone shows the same book.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<Key, Page>>>);

/// What became of the permits of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// How many were granted.
    pub(crate) granted: u32,
    /// How many times one came back.
    pub(crate) returned: u32,
    /// How many were out together at most.
    pub(crate) most: u32,
}

impl Ledger {
    pub(crate) fn page(&self, key: &'static str) -> Page {
        self.lock().get(&key.into()).copied().unwrap_or_default()
    }

    fn take(&self, claim: &Claim) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        let mut book = self.lock();
        let page = book.entry(claim.key().clone()).or_default();
        let held = page.granted - page.returned + 1;
        if held > units.limit() {
            return Err(AcquireError::full(claim, held - 1));
        }
        page.granted += 1;
        page.most = page.most.max(held);
        let entry = Entry {
            ledger: self.clone(),
            key: claim.key().clone(),
            loss: Loss::default(),
            back: AtomicBool::new(false),
        };
        Ok(Permit::new(entry, units, held))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Semaphore for Ledger {
    fn acquire(&self, claim: Claim) -> Acquire {
        Acquire::ready(self.take(&claim))
    }
}

/// A permit that is out, or was.
struct Entry {
    ledger: Ledger,
    key: Key,
    loss: Loss,
    back: AtomicBool,
}

impl Entry {
    /// Whether it was out until now.
    fn give_back(&self) -> bool {
        let was_out = !self.back.swap(true, Ordering::SeqCst);
        let mut book = self.ledger.lock();
        book.entry(self.key.clone()).or_default().returned += u32::from(was_out);
        was_out
    }
}

impl Grant for Entry {
    fn token(&self) -> u64 {
        0
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(self.give_back()))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.give_back();
    }
}
