//! A store that counts granted and released permits.

use std::{
    collections::HashMap,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tower_semaphore::{
    Acquire, AcquireError, Claim, Claims, Key, Permit, Semaphore,
    semaphore::{
        BoxFuture, ClaimError, Grant, LevelState, Loss, Resize, Resizing, SemaphoreId, StoreError,
    },
};

/// A store for permits of weight 1. Clones share their counts.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<HashMap<Key, Page>>>);

/// The counts of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Page {
    /// The number of grants.
    pub granted: u32,
    /// The number of releases.
    pub returned: u32,
    /// The most permits held at the same time.
    pub most: u32,
}

impl Ledger {
    pub fn page(&self, key: &'static str) -> Page {
        self.lock().get(&key.into()).copied().unwrap_or_default()
    }

    fn take(&self, claim: &Claim) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        let mut pages = self.lock();
        let page = pages.entry(claim.key().clone()).or_default();
        // With this permit.
        let held = page.granted - page.returned + 1;
        if held > units.limit() {
            let full = AcquireError::full(claim, held - 1);
            return Err(full.by_semaphore(self.id(claim.key())));
        }
        page.granted += 1;
        page.most = page.most.max(held);
        let entry = Entry {
            ledger: self.clone(),
            key: claim.key().clone(),
            loss: Loss::default(),
            released: AtomicBool::new(false),
        };
        Ok(Permit::new(entry, [(claim, held)]))
    }

    /// The id of a key's semaphore, the same under every policy.
    pub fn id(&self, key: &Key) -> SemaphoreId {
        SemaphoreId::new((Arc::as_ptr(&self.0), key))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Semaphore for Ledger {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        Acquire::ready(claims.only().and_then(|claim| self.take(&claim)))
    }
}

/// A permit, held or released.
struct Entry {
    ledger: Ledger,
    key: Key,
    loss: Loss,
    released: AtomicBool,
}

impl Entry {
    /// Releases the permit. Returns true if it was still held.
    fn release_once(&self) -> bool {
        let was_held = !self.released.swap(true, Ordering::SeqCst);
        let mut pages = self.ledger.lock();
        pages.entry(self.key.clone()).or_default().returned += u32::from(was_held);
        was_held
    }
}

impl Grant for Entry {
    fn level(&self, _: usize) -> LevelState {
        let is_released = self.released.load(Ordering::SeqCst);
        LevelState::new(u32::from(!is_released))
    }

    fn semaphore(&self, _: usize) -> Option<SemaphoreId> {
        Some(self.ledger.id(&self.key))
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn resize(&self, _: Vec<Resize>) -> Resizing<'_> {
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(self.release_once()))
    }

    fn pause(&self, _: usize, _: Duration, _: &str) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(Err(StoreError::new("the store has no pauses"))))
    }

    fn settle(&self, _level: usize, _used: u32) {}

    fn awaits_release(&self) -> bool {
        false
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.release_once();
    }
}
