//! Stores that never grant, or whose permits do not last.

use std::{
    future::{pending, ready},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;
use tower_semaphore::{
    Acquire, AcquireError, Claim, Claims, MemorySemaphore, Permit, Semaphore,
    semaphore::{
        BoxFuture, ClaimError, Grant, LevelState, Loss, Resize, Resizing, SemaphoreId, StoreError,
    },
};

/// A store that is unreachable.
#[derive(Clone, Copy)]
pub struct Broken;

impl Semaphore for Broken {
    fn acquire_all(&self, _: Claims) -> Acquire {
        Acquire::ready(Err(StoreError::new("connection refused").into()))
    }
}

/// A store that fails while a claim waits.
pub struct Failing;

impl Semaphore for Failing {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        Acquire::pending(async move {
            tokio::task::yield_now().await;
            Broken.acquire_all(claims).await
        })
    }
}

/// A store whose queue is full.
pub struct Overloaded;

impl Semaphore for Overloaded {
    fn acquire_all(&self, _: Claims) -> Acquire {
        Acquire::ready(Err(AcquireError::Overloaded))
    }
}

/// A store whose limit for the whole fleet is reached.
pub struct Fleet;

impl Semaphore for Fleet {
    fn acquire_all(&self, _: Claims) -> Acquire {
        let fleet = Claim::new("all").with_policy("fleet").with_limit(7);
        Acquire::ready(Err(AcquireError::full(&fleet, 6)))
    }
}

/// A store that gives every claim the same answer.
pub struct Refusing(pub AcquireError);

impl Semaphore for Refusing {
    fn acquire_all(&self, _: Claims) -> Acquire {
        Acquire::ready(Err(self.0.clone()))
    }
}

/// A store that is shut down.
pub struct Closed;

impl Semaphore for Closed {
    fn acquire_all(&self, _: Claims) -> Acquire {
        Acquire::ready(Err(AcquireError::Closed))
    }
}

/// A store that must not be called.
pub struct Uncalled;

impl Semaphore for Uncalled {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        panic!("called with {claims:?}")
    }
}

/// A store in memory that is unreachable while its flag is set.
#[derive(Clone, Default)]
pub struct Flaky {
    fails: Arc<AtomicBool>,
    store: MemorySemaphore,
}

impl Flaky {
    pub fn fail(&self) {
        self.fails.store(true, Ordering::SeqCst);
    }

    pub fn recover(&self) {
        self.fails.store(false, Ordering::SeqCst);
    }
}

impl Semaphore for Flaky {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        if self.fails.load(Ordering::SeqCst) {
            return Broken.acquire_all(claims);
        }
        self.store.acquire_all(claims)
    }
}

/// A store in which every claim waits. It counts the waiters, and all claims so far.
#[derive(Clone, Default)]
pub struct Slow(Arc<SlowCounts>);

#[derive(Default)]
struct SlowCounts {
    waiting: AtomicUsize,
    acquires: AtomicUsize,
}

impl Slow {
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// The number of claims so far.
    pub fn acquires(&self) -> usize {
        self.0.acquires.load(Ordering::SeqCst)
    }
}

impl Semaphore for Slow {
    fn acquire_all(&self, _: Claims) -> Acquire {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        self.0.acquires.fetch_add(1, Ordering::SeqCst);
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
        let Self(store) = self;
        store.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A store that grants everything until it is closed. With [`lose`](Self::lose) a test ends the newest permit. The n-th
/// permit has the token n.
#[derive(Clone, Default)]
pub struct Fickle(Arc<Mutex<Newest>>);

/// The newest permit.
#[derive(Default)]
struct Newest {
    loss: Weak<Loss>,
    token: u64,
    closed: bool,
}

impl Fickle {
    pub fn lose(&self) {
        let loss = self.newest().loss.upgrade();
        loss.expect("the newest permit is held").set();
    }

    /// True while the newest permit is not released.
    pub fn is_held(&self) -> bool {
        self.newest().loss.strong_count() > 0
    }

    /// The newest permit's token.
    pub fn token(&self) -> u64 {
        self.newest().token
    }

    pub fn close(&self) {
        self.newest().closed = true;
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().expect("no panic")
    }

    fn grant(&self) -> FickleGrant {
        let loss = Arc::new(Loss::default());
        let mut newest = self.newest();
        newest.loss = Arc::downgrade(&loss);
        newest.token += 1;
        FickleGrant {
            loss,
            token: newest.token,
        }
    }
}

impl Semaphore for Fickle {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        if self.newest().closed {
            return Closed.acquire_all(claims);
        }
        let granted = |claim: Claim| Permit::new(self.grant(), [(&claim, 1)]);
        Acquire::ready(claims.only().map(granted))
    }
}

struct FickleGrant {
    loss: Arc<Loss>,
    token: u64,
}

impl Grant for FickleGrant {
    fn level(&self, _: usize) -> LevelState {
        let mut state = LevelState::new(1);
        state.token = Some(self.token);
        state
    }

    fn semaphore(&self, _: usize) -> Option<SemaphoreId> {
        None
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn resize(&self, _: Vec<Resize>) -> Resizing<'_> {
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(false))
    }

    fn pause(&self, _: usize, _: Duration, _: &str) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(Err(StoreError::new("the store has no pauses"))))
    }

    fn settle(&self, _level: usize, _used: u32) {}

    fn awaits_release(&self) -> bool {
        false
    }
}

/// A store that grants everything, and answers releases once a test calls [`answer`](Self::answer).
#[derive(Clone)]
pub struct Remote(Arc<Server>);

struct Server {
    /// True if the grants report that responses must wait for the answers to releases, as they do for a full key.
    is_full: bool,
    released: AtomicUsize,
    is_answering: watch::Sender<bool>,
}

impl Remote {
    /// A store that reports its keys as full, so that responses wait for the answers to releases. It still grants
    /// everything.
    pub fn full() -> Self {
        Self::new(true)
    }

    /// A store whose keys have room.
    pub fn with_room() -> Self {
        Self::new(false)
    }

    fn new(is_full: bool) -> Self {
        Self(Arc::new(Server {
            is_full,
            released: AtomicUsize::new(0),
            is_answering: watch::Sender::new(false),
        }))
    }

    /// Answers all releases, past and future.
    pub fn answer(&self) {
        self.0.is_answering.send_replace(true);
    }

    /// The number of released permits.
    pub fn released(&self) -> usize {
        self.0.released.load(Ordering::SeqCst)
    }
}

impl Semaphore for Remote {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let grant = RemoteGrant {
            server: Arc::clone(&self.0),
            is_released: AtomicBool::new(false),
            loss: Loss::default(),
        };
        let granted = |claim: Claim| Permit::new(grant, [(&claim, 1)]);
        Acquire::ready(claims.only().map(granted))
    }
}

struct RemoteGrant {
    server: Arc<Server>,
    is_released: AtomicBool,
    loss: Loss,
}

impl Grant for RemoteGrant {
    fn level(&self, _: usize) -> LevelState {
        let is_released = self.is_released.load(Ordering::SeqCst);
        LevelState::new(u32::from(!is_released))
    }

    fn semaphore(&self, _: usize) -> Option<SemaphoreId> {
        None
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn resize(&self, _: Vec<Resize>) -> Resizing<'_> {
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    fn release(&self) -> BoxFuture<bool> {
        if self.is_released.swap(true, Ordering::SeqCst) {
            return Box::pin(ready(false));
        }
        self.server.released.fetch_add(1, Ordering::SeqCst);
        let mut is_answering = self.server.is_answering.subscribe();
        Box::pin(async move {
            is_answering
                .wait_for(|is_answering| *is_answering)
                .await
                .is_ok()
        })
    }

    fn pause(&self, _: usize, _: Duration, _: &str) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(Err(StoreError::new("the store has no pauses"))))
    }

    fn settle(&self, _level: usize, _used: u32) {}

    fn awaits_release(&self) -> bool {
        self.server.is_full
    }
}

impl Drop for RemoteGrant {
    fn drop(&mut self) {
        drop(self.release());
    }
}
