//! Wrappers of stores that each forward one method, as in the guide's recipe.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::time::sleep;
use tower_semaphore::{Acquire, Claims, Semaphore, semaphore::StoreError};

/// Answers later than its store, by a fixed delay.
#[derive(Clone)]
pub struct Delayed<S> {
    pub store: Arc<S>,
    pub by: Duration,
}

impl<S: Semaphore> Semaphore for Delayed<S> {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let (store, by) = (Arc::clone(&self.store), self.by);
        Acquire::pending(async move {
            sleep(by).await;
            store.acquire_all(claims).await
        })
    }
}

/// Fails while a test requires it.
#[derive(Clone)]
pub struct Faulty<S> {
    pub store: S,
    pub fails: Arc<AtomicBool>,
}

impl<S: Semaphore> Semaphore for Faulty<S> {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        if self.fails.load(SeqCst) {
            let error = StoreError::new("a fault for a test");
            return Acquire::ready(Err(error.into()));
        }
        self.store.acquire_all(claims)
    }
}

/// Keeps the keys with a prefix in one store, and all other keys in another.
#[derive(Clone)]
pub struct Split<A, B> {
    pub prefix: &'static str,
    pub with: A,
    pub without: B,
}

impl<A: Semaphore, B: Semaphore> Semaphore for Split<A, B> {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let prefix = self.prefix.as_bytes();
        let mut claimed = claims.as_slice().iter();
        match claimed.all(|claim| claim.key().as_bytes().starts_with(prefix)) {
            true => self.with.acquire_all(claims),
            false => self.without.acquire_all(claims),
        }
    }
}
