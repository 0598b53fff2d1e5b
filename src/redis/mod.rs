//! A semaphore for each key, in Redis, for all processes that share it.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tower_semaphore::{Claim, RedisSemaphore, Semaphore};
//!
//! let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
//! let claim = Claim::new("account-42").with_limit(5).with_wait(Duration::from_secs(2));
//!
//! let permit = semaphore.acquire(claim).await?;
//! // Work. The permit is refreshed meanwhile.
//! drop(permit);
//! # Ok(()) }
//! ```
//!
//! # How it works
//!
//! It grew from the fair semaphore in chapter 6 of *Redis in Action*. Each policy and key has
//! four keys in Redis, under one hash tag so that a cluster keeps them together:
//!
//! | key | type | holds |
//! |---|---|---|
//! | `PREFIX{POLICY:KEY}:held` | sorted set | unit of a permit → end of its lease |
//! | `PREFIX{POLICY:KEY}:line` | sorted set | permit that waits → its ticket |
//! | `PREFIX{POLICY:KEY}:beat` | sorted set | permit that waits → until when it counts as alive |
//! | `PREFIX{POLICY:KEY}:ticket` | string | the last ticket |
//!
//! Three scripts work on them: *acquire* is the one round trip of a request, *refresh* and
//! *release* are sent by the keeper, a task of each store, for many permits at once. Each script
//! is atomic and takes the time from the server. Each may be repeated: a permit's id is chosen by
//! this process and counts once. So an acquire whose answer was lost is simply released.
//!
//! A script does its work for one semaphore after the other, so that one call serves many.
//! Refreshes and releases travel so, and so do claims that come while sixteen others are on their
//! way. On a connection that was handed in, which may be a cluster's, every semaphore has a call
//! of its own.
//!
//! All keys expire after a few leases. Claims that wait are told by `PUBLISH` on a channel of
//! their process's, and look by themselves now and then, in case a message is lost.
//!
//! # What a server must allow
//!
//! With access control lists: `~PREFIX* &PREFIX* +eval +evalsha +time +ping +subscribe +publish
//! +exists +get +incr +set +pexpire +pttl +zadd +zcard +zrange +zrangebyscore +zrem
//! +zremrangebyscore +zscore`. An eviction policy that may evict keys with a time to live may evict permits; use
//! `noeviction`. Redis 6.2 or newer.

mod answer;
mod ask;
mod builder;
mod connection;
mod core;
mod error;
mod grant;
mod inbox;
mod keeper;
mod lease;
mod name;
mod outbox;
mod script;
mod wait;
mod wake;
mod wheel;

pub use builder::Builder;
pub use error::Error;

use self::{
    answer::Answer, core::Core, grant::RedisGrant, keeper::Order, lease::Lease, wake::Wakes,
};
use crate::semaphore::{Acquire, AcquireError, Claim, Permit, Semaphore};
use ::redis::{IntoConnectionInfo, aio::ConnectionLike};
use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// A semaphore for each key, in Redis. See the [module docs](self).
#[derive(Clone)]
pub struct RedisSemaphore(Arc<Store>);

/// What all handles and permits share. When the last of them is gone, so is the keeper.
struct Store {
    prefix: String,
    core: Arc<Core>,
    serial: AtomicU64,
    closed: AtomicBool,
    wakes: Arc<Wakes>,
    max_waiting: usize,
    keeper: RwLock<Option<mpsc::UnboundedSender<Order>>>,
}

impl RedisSemaphore {
    /// Connects to one server with the default settings. `url` is what redis-rs takes, such as
    /// `redis://127.0.0.1/`.
    ///
    /// # Errors
    ///
    /// See [`Builder::connect`].
    pub async fn connect(url: impl IntoConnectionInfo) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Uses a connection that is there already, with the default settings.
    ///
    /// # Errors
    ///
    /// See [`Builder::with_connection`].
    pub fn with_connection<C>(connection: C) -> Result<Self, Error>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::builder().with_connection(connection)
    }

    /// Settings to change before connecting.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(prefix: String, core: Core, wakes: Wakes, max_waiting: usize) -> Self {
        Self(Arc::new(Store {
            prefix,
            core: Arc::new(core),
            serial: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            wakes: Arc::new(wakes),
            max_waiting,
            keeper: RwLock::default(),
        }))
    }

    /// Admits nobody any more, and gives everything back that this process holds. Returns what
    /// could not be given back within `bound`; the server frees it when its lease ends.
    ///
    /// Holders that still run are told that their permits are lost, so call it after the server
    /// has drained.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses only the answer.
    pub async fn shutdown(&self, bound: Duration) -> Vec<Unreleased> {
        self.0.closed.store(true, Ordering::SeqCst);
        let (done, rest) = oneshot::channel();
        self.0.order(Order::Shutdown(Instant::now() + bound, done));
        let rest = rest.await.unwrap_or_default();
        let unreleased = |lease: Arc<Lease>| Unreleased {
            semaphore: lease.name().to_string(),
            token: lease.token(),
        };
        rest.into_iter().map(unreleased).collect()
    }
}

/// A permit that [`RedisSemaphore::shutdown`] could not give back in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreleased {
    /// What the names of its semaphore's keys in Redis begin with.
    pub semaphore: String,
    /// Its token; 0 if the answer to its acquire never came.
    pub token: u64,
}

impl Store {
    async fn acquire(self: Arc<Self>, claim: Claim) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        self.check_open()?;
        self.keep();
        let name = name::name(&self.prefix, claim.policy(), claim.key());
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let lease = Arc::new(Lease::new(name, units, serial));
        // From here on, a drop takes back what was asked.
        let grant = RedisGrant {
            lease: Arc::clone(&lease),
            store: Arc::clone(&self),
        };
        let answer = match claim.wait() {
            None => self.try_now(&lease).await?,
            // Boxed, so that claims that do not wait carry a small future around.
            Some(wait) => Box::pin(self.wait(&lease, wait)).await?,
        };
        let held = granted(answer, &claim)?;
        self.core.granted.add(lease);
        self.check_open()?;
        Ok(Permit::new(grant, units, held))
    }

    fn check_open(&self) -> Result<(), AcquireError> {
        match self.closed.load(Ordering::SeqCst) {
            true => Err(AcquireError::Closed),
            false => Ok(()),
        }
    }

    /// Starts a keeper if none runs: the first time, or when the runtime of the last has ended.
    fn keep(&self) {
        let is_live = |keeper: &Option<mpsc::UnboundedSender<Order>>| {
            keeper.as_ref().is_some_and(|keeper| !keeper.is_closed())
        };
        if is_live(&self.keeper.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut keeper = self.keeper.write().unwrap_or_else(PoisonError::into_inner);
        if !is_live(&keeper) {
            *keeper = Some(keeper::start(Arc::clone(&self.core)));
        }
    }

    /// Tells the keeper. Without one its runtime is gone, and leases end by themselves.
    fn order(&self, order: Order) {
        let keeper = self.keeper.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = &*keeper {
            let _ = keeper.send(order);
        }
    }
}

/// How much is held with a permit that was granted.
fn granted(answer: Answer, claim: &Claim) -> Result<u32, AcquireError> {
    match answer {
        Answer::Granted { held, .. } => Ok(held),
        Answer::Full { held } => Err(AcquireError::full(claim, held)),
        Answer::LineFull => Err(AcquireError::QueueFull),
        Answer::Waiting { .. } => Err(AcquireError::TimedOut),
    }
}

impl Semaphore for RedisSemaphore {
    fn acquire(&self, claim: Claim) -> Acquire {
        Acquire::pending(Arc::clone(&self.0).acquire(claim))
    }
}

impl fmt::Debug for RedisSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSemaphore")
            .field("prefix", &self.0.prefix)
            .field("lease", &self.0.core.times.lease)
            .finish_non_exhaustive()
    }
}
