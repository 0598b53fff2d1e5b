//! Custom stores, and wrappers of stores.
//!
//! A store is one method, [`Semaphore::acquire_all`](crate::Semaphore::acquire_all), so a wrapper forwards one method.
//! The answer contains the limit in force, which refusals show, and the id of the semaphore. By this id a layer for HTTP
//! finds an outer layer that [counts in the same semaphore](crate::ConcurrencyLimitLayer#nested-limits). A wrapper that
//! compiles works behind every layer, inside of other limits, and under a limit that an
//! [operator sets](crate::Operate::set_limit). See [`Acquire`](crate::Acquire) for a store that counts by itself.
//!
//! # A store that answers later
//!
//! This store is for tests of timeouts. A cancelled request leaves nothing behind, because the future that holds the
//! claim is dropped.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tower_semaphore::{Acquire, Claim, Claims, MemorySemaphore, Semaphore};
//!
//! struct Delayed<S> {
//!     store: Arc<S>,
//!     by: Duration,
//! }
//!
//! impl<S: Semaphore> Semaphore for Delayed<S> {
//!     fn acquire_all(&self, claims: Claims) -> Acquire {
//!         let (store, by) = (Arc::clone(&self.store), self.by);
//!         Acquire::pending(async move {
//!             tokio::time::sleep(by).await;
//!             store.acquire_all(claims).await
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let store = Delayed { store: Arc::new(MemorySemaphore::new()), by: Duration::from_secs(3) };
//! let start = tokio::time::Instant::now();
//! assert!(store.acquire(Claim::new("ann").with_limit(1)).await.is_ok());
//! assert_eq!(start.elapsed().as_secs(), 3);
//! # }
//! ```
//!
//! # A store that fails
//!
//! To see what clients get while the store is down:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
//! use tower_semaphore::{Acquire, Claim, Claims, MemorySemaphore, Semaphore, semaphore::StoreError};
//!
//! struct Faulty<S> {
//!     store: S,
//!     fails: Arc<AtomicBool>,
//! }
//!
//! impl<S: Semaphore> Semaphore for Faulty<S> {
//!     fn acquire_all(&self, claims: Claims) -> Acquire {
//!         if self.fails.load(Ordering::SeqCst) {
//!             let error = StoreError::new("a fault for a test");
//!             return Acquire::ready(Err(error.into()));
//!         }
//!         self.store.acquire_all(claims)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let fails = Arc::new(AtomicBool::new(true));
//! let store = Faulty { store: MemorySemaphore::new(), fails: Arc::clone(&fails) };
//! assert!(store.acquire(Claim::new("ann").with_limit(1)).await.is_err());
//! fails.store(false, Ordering::SeqCst);
//! assert!(store.acquire(Claim::new("ann").with_limit(1)).await.is_ok());
//! # }
//! ```
//!
//! # A choice of two stores
//!
//! The keys of one region are in its own Redis, and all other keys in another. All claims of a request go to one store,
//! because only a store can grant several limits at all or at none.
//!
//! ```
//! use tower_semaphore::{Acquire, Claim, Claims, MemorySemaphore, Semaphore};
//!
//! struct Split<A, B> {
//!     prefix: &'static str,
//!     matching: A,
//!     others: B,
//! }
//!
//! impl<A: Semaphore, B: Semaphore> Semaphore for Split<A, B> {
//!     fn acquire_all(&self, claims: Claims) -> Acquire {
//!         let prefix = self.prefix.as_bytes();
//!         let mut claimed = claims.as_slice().iter();
//!         match claimed.all(|claim| claim.key().as_bytes().starts_with(prefix)) {
//!             true => self.matching.acquire_all(claims),
//!             false => self.others.acquire_all(claims),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let (europe, others) = (MemorySemaphore::new(), MemorySemaphore::new());
//! let store = Split { prefix: "eu-", matching: europe.clone(), others };
//! let permit = store.acquire(Claim::new("eu-42").with_limit(1)).await.unwrap();
//! assert_eq!(europe.busy_keys(), 1);
//! # drop(permit);
//! # }
//! ```
//!
//! A wrapper may also change claims, for example their policy. Change the claims that it gets instead of making new
//! ones: they carry the semaphores of the limits outside, so that a nested limit is found before the wait. With new
//! claims such a request gets its status 500 only at the end of its wait.
