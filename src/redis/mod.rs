//! A semaphore for each key, in Redis, for all processes that share it.
//!
//! wip

mod answer;
mod builder;
mod connection;
mod core;
mod error;
mod grant;
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
    answer::Answer, core::Core, grant::RedisGrant, keeper::Order, lease::Lease, script::Place,
    wake::Wakes,
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
            semaphore: lease.name.to_string(),
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
            None => self.ask(&lease, Place::default()).await?,
            Some(wait) => self.wait(&lease, wait).await?,
        };
        let held = granted(answer, units.limit)?;
        self.order(Order::Hold(lease));
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
fn granted(answer: Answer, limit: u32) -> Result<u32, AcquireError> {
    match answer {
        Answer::Granted { held, .. } => Ok(held),
        Answer::Full { held } => Err(AcquireError::Full { limit, held }),
        Answer::LineFull => Err(AcquireError::LineFull),
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
