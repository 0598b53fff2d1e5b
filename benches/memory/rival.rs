//! The compared semaphores, called as a middleware would: each call looks up the key that the request contains.

use dashmap::DashMap;
use futures_util::FutureExt;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore as TokioSemaphore};
use tower_semaphore::{Claim, MemorySemaphore, Permit, Semaphore};

/// A semaphore per key. A permit is held until it is dropped.
pub(crate) trait Rival: Clone + Send + Sync + 'static {
    type Held: Send + 'static;

    fn take(&self, key: &str, limit: u32) -> Option<Self::Held>;
}

impl Rival for MemorySemaphore {
    type Held = Permit;

    fn take(&self, key: &str, limit: u32) -> Option<Permit> {
        let claim = Claim::new(key.as_bytes()).with_limit(limit);
        self.acquire(claim).now_or_never()?.ok()
    }
}

/// A map that never removes a key.
#[derive(Clone, Default)]
pub(crate) struct Dash(Arc<DashMap<String, Arc<TokioSemaphore>>>);

impl Rival for Dash {
    type Held = OwnedSemaphorePermit;

    fn take(&self, key: &str, limit: u32) -> Option<OwnedSemaphorePermit> {
        self.semaphore_for(key, limit).try_acquire_owned().ok()
    }
}

impl Dash {
    /// The semaphore of a key. The key is copied only the first time.
    fn semaphore_for(&self, key: &str, limit: u32) -> Arc<TokioSemaphore> {
        if let Some(semaphore) = self.0.get(key) {
            return Arc::clone(&semaphore);
        }
        let new = || Arc::new(TokioSemaphore::new(limit as usize));
        Arc::clone(&self.0.entry(key.to_owned()).or_insert_with(new))
    }
}
