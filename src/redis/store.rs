//! The handle, and what all its clones share.

use super::{
    acquire::RedisGrant,
    builder::Builder,
    clock::{ServerClock, Times, after},
    dispatch::Dispatch,
    error::Error,
    keeper::Keeper,
    lease::Lease,
    notify::Notifications,
    protocol::{PermitId, Protocol, name},
};
use crate::semaphore::{Acquire, AcquireError, Claim, Semaphore, StoreError, Units};
use ::redis::{IntoConnectionInfo, aio::ConnectionLike};
use futures_util::future::join;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// A semaphore for each key, in Redis. See the [module docs](super).
#[derive(Clone)]
pub struct RedisSemaphore(Arc<Store>);

/// What all handles and permits share. When the last of them is gone, so is the keeper.
pub(super) struct Store {
    prefix: String,
    pub(super) times: Times,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) keeper: Keeper,
    pub(super) notifications: Arc<Notifications>,
    pub(super) max_waiting: usize,
    serial: AtomicU64,
    closed: watch::Sender<bool>,
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

    pub(super) fn new(
        prefix: String,
        times: Times,
        clock: Arc<ServerClock>,
        protocol: Protocol,
        notifications: Notifications,
        max_waiting: usize,
    ) -> Self {
        let (dispatch, queue) = Dispatch::new(protocol, times, Arc::clone(&clock));
        let (dispatch, notifications) = (Arc::new(dispatch), Arc::new(notifications));
        let batches = Arc::clone(&dispatch).run(queue);
        let listener = Arc::clone(&notifications).listen();
        let others = async move {
            join(batches, listener).await;
        };
        Self(Arc::new(Store {
            prefix,
            times,
            keeper: Keeper::new(Arc::clone(&dispatch), times, clock, others),
            dispatch,
            notifications,
            max_waiting,
            serial: AtomicU64::new(1),
            closed: watch::Sender::new(false),
        }))
    }

    /// Admits no claim any more, ends those that wait, and releases everything that this process
    /// holds. Returns what could not be released within `bound`; the server frees it when its
    /// lease ends.
    ///
    /// Holders that still run are told that their permits are lost, so call it after the server
    /// has drained. A claim whose answer is on its way is refused and released too, which takes
    /// until no command of it can run any more: a [`timeout`](Builder::timeout) at most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses only the answer.
    pub async fn shutdown(&self, bound: Duration) -> Vec<Unreleased> {
        self.0.closed.send_replace(true);
        let rest = self.0.keeper.shutdown(after(bound)).await;
        let unreleased = |lease: Arc<Lease>| Unreleased {
            semaphore: lease.name().to_string(),
            token: lease.token(),
        };
        rest.into_iter().map(unreleased).collect()
    }
}

/// A permit that [`RedisSemaphore::shutdown`] could not release in time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// What the names of its semaphore's keys in Redis begin with.
    pub semaphore: String,
    /// Its token; 0 if the answer to its acquire never came.
    pub token: u64,
}

impl Store {
    /// A lease for a claim, which the keeper knows before anything is sent, and which is released
    /// when what holds it is dropped.
    pub(super) fn lease(self: &Arc<Self>, claim: &Claim, units: Units) -> RedisGrant {
        let name = name(&self.prefix, claim.policy(), claim.key());
        let permit = PermitId {
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            limit: units.limit,
            weight: units.weight,
        };
        let lease = Arc::new(Lease::new(name, permit));
        self.keeper.register(&lease);
        let store = Arc::clone(self);
        RedisGrant { lease, store }
    }

    /// Refuses claims after a shutdown, and starts the keeper before the first.
    pub(super) fn open(&self) -> Result<(), AcquireError> {
        self.check_open()?;
        let no_thread = |error: std::io::Error| Error::Unavailable(error.into());
        let started = self.keeper.start().map_err(no_thread);
        started.map_err(|error| StoreError::new(error).into())
    }

    pub(super) fn check_open(&self) -> Result<(), AcquireError> {
        match *self.closed.borrow() {
            true => Err(AcquireError::Closed),
            false => Ok(()),
        }
    }

    /// Waits for a shutdown.
    pub(super) async fn closed(&self) {
        // The sender lives as long as this.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
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
            .field("lease", &self.0.times.lease)
            .finish_non_exhaustive()
    }
}
