//! Jobs: work without HTTP.
//!
//! # A bounded number at a time
//!
//! Claim, keep the permit, work. The permit is refreshed in the background for as long as it lives, and its drop
//! gives it back, whether the job ends, fails or panics:
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
//!
//! async fn transcode(semaphore: &impl Semaphore, video: &str) -> Result<(), AcquireError> {
//!     let claim = Claim::new("transcoders").with_limit(8).with_wait(Duration::from_secs(3_600));
//!     let permit = semaphore.acquire(claim).await?;
//!     tokio::select! {
//!         () = work(video) => {}
//!         () = permit.lost() => eprintln!("{video}: stopped, because the permit was lost"),
//!     }
//!     Ok(())
//! }
//! # async fn work(_: &str) {}
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let semaphore = MemorySemaphore::new(); // or one in Redis, for all workers together
//! transcode(&semaphore, "intro.mov").await.unwrap();
//! # }
//! ```
//!
//! - A drop only queues the release. If a process ends right after its last job, await
//!   [`permit.release()`](crate::Permit::release), or [`shutdown`](crate::RedisSemaphore::shutdown) for all permits.
//!   The drop of the last handle and permit at the end of `main` waits up to 10 ms for queued releases. With a store in
//!   a `static`, or after `std::process::exit`, no such drop happens. If a release is not sent, the permit is held
//!   until its lease ends.
//! - Without a layer a claim needs a limit, and waits only if it sets a wait.
//! - Claim *before* you take a job from its queue. Then jobs that have to wait stay in the queue, where any process can
//!   take them.
//! - The keeper has a separate thread, so work that blocks the runtime for minutes loses no permit. Only code that
//!   awaits `lost` needs the runtime.
//! - Give work that must not run twice a [strict](crate::Claim::with_strict) claim. It is refused in an outage,
//!   whatever the policy.
//!
//! # Once in the whole fleet
//!
//! Each process has the timer, and one of them gets the [`Lock`](crate::Lock):
//!
//! ```
//! use tower_semaphore::{AcquireError, Lock, MemorySemaphore};
//!
//! async fn nightly(report: &Lock) -> Result<bool, AcquireError> {
//!     let guard = match report.try_acquire().await {
//!         Ok(guard) => guard,
//!         Err(AcquireError::Full { .. }) => return Ok(false), // another process does it
//!         Err(error) => return Err(error),
//!     };
//!     write_report(guard.token()).await;
//!     Ok(guard.release().await) // true if it was still held
//! }
//! # async fn write_report(_: u64) {}
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let report = Lock::new(MemorySemaphore::new(), "nightly-report");
//! assert!(nightly(&report).await.unwrap());
//! # }
//! ```
//!
//! The lock ensures that no other process does the work *now*, not that none did it a minute ago. So store the time of
//! the last run with the report, and check it while you hold the lock.
//!
//! # A database protected from a dogpile
//!
//! When a cache entry expires, all requests that miss it query the database at once. Let one request query, and the
//! others wait for its result. This needs a lock for each entry, and a second look into the cache under the lock.
//!
//! ```
//! use std::{collections::HashMap, sync::{Arc, Mutex, atomic::{AtomicUsize, Ordering}}, time::Duration};
//! use tower_semaphore::{AcquireError, Lock, MemorySemaphore, Semaphore};
//!
//! #[derive(Clone, Default)]
//! struct Cache(Arc<Mutex<HashMap<String, String>>>); // Redis, for one cache of all processes
//!
//! impl Cache {
//!     fn get(&self, key: &str) -> Option<String> {
//!         self.0.lock().unwrap().get(key).cloned()
//!     }
//!     fn put(&self, key: &str, value: &str) {
//!         self.0.lock().unwrap().insert(key.to_owned(), value.to_owned());
//!     }
//! }
//!
//! static QUERIES: AtomicUsize = AtomicUsize::new(0);
//!
//! async fn query(_: &str) -> String {
//!     QUERIES.fetch_add(1, Ordering::Relaxed);
//!     tokio::time::sleep(Duration::from_millis(20)).await;
//!     "value".to_owned()
//! }
//!
//! async fn cached(cache: &Cache, store: impl Semaphore, key: &str) -> Result<String, AcquireError> {
//!     if let Some(value) = cache.get(key) {
//!         return Ok(value);
//!     }
//!     let _guard = Lock::new(store, key).acquire(Duration::from_secs(2)).await?;
//!     if let Some(value) = cache.get(key) {
//!         return Ok(value); // filled while this one waited
//!     }
//!     let value = query(key).await;
//!     cache.put(key, &value);
//!     Ok(value)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let (cache, store) = (Cache::default(), MemorySemaphore::new());
//! let mut tasks = tokio::task::JoinSet::new();
//! for _ in 0..100 {
//!     let (cache, store) = (cache.clone(), store.clone());
//!     tasks.spawn(async move { cached(&cache, store, "front-page").await });
//! }
//! assert!(tasks.join_all().await.into_iter().all(|answer| answer.is_ok()));
//! assert_eq!(QUERIES.load(Ordering::Relaxed), 1);
//! # }
//! ```
//!
//! - On an error, serve the old value if the cache still has it: `TimedOut` means that the query takes long,
//!   `QueueFull` that very many requests wait.
//! - Entries of many keys may still expire together. A limit for the database itself, such as
//!   `Claim::new("database").with_limit(20)`, acquired around `query`, bounds that.
