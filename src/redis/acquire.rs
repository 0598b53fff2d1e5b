//! The way of a claim: one try, or the queue. One [budget](Times::budget) covers a call for the claim
//! from its first byte to its answer.

use super::{
    clock::{ServerClock, Times},
    dispatch::{self, Dispatch},
    error::Error,
    keeper::Keeper,
    lease::Lease,
    notify::Notifications,
    protocol::{Acquired, PermitId, Protocol, name},
    wait,
};
use crate::semaphore::{
    AcquireError, BoxFuture, Claim, Grant, Loss, Permit, StoreError, Units, Wait,
};
use futures_util::future::{Either, join, select};
use std::{
    fmt,
    future::ready,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::{
    sync::{oneshot, watch},
    time::timeout_at,
};

/// What all handles and permits of a store share. The keeper ends after the last of them is dropped.
pub(super) struct Store {
    prefix: String,
    times: Times,
    dispatch: Dispatch,
    keeper: Keeper,
    notifications: Arc<Notifications>,
    max_waiting: usize,
    serial: AtomicU64,
    closed: watch::Sender<bool>,
}

impl Store {
    pub(super) fn new(
        prefix: String,
        times: Times,
        clock: Arc<ServerClock>,
        protocol: Protocol,
        notifications: Notifications,
        max_waiting: usize,
    ) -> Self {
        let (dispatch, batches) = Dispatch::new(protocol, times, clock);
        let notifications = Arc::new(notifications);
        let listener = Arc::clone(&notifications).listen();
        let others = async move {
            join(batches, listener).await;
        };
        Self {
            prefix,
            times,
            keeper: Keeper::new(Arc::clone(dispatch.attempts()), times, others),
            dispatch,
            notifications,
            max_waiting,
            serial: AtomicU64::new(1),
            closed: watch::Sender::new(false),
        }
    }

    /// Starts the keeper and learns the server's time.
    pub(super) async fn warm_up(&self) -> Result<(), Error> {
        self.start()?;
        let deadline = Instant::now() + self.times.budget();
        // A failure is ignored: the first claim tries again, and reports the error.
        let _ = self.dispatch.attempts().learn_clock(deadline).await;
        Ok(())
    }

    fn start(&self) -> Result<(), Error> {
        let no_thread = |error: io::Error| Error::Unavailable(error.into());
        self.keeper.start().map_err(no_thread)
    }

    /// Refuses claims after a shutdown, and starts the keeper unless it runs.
    fn open(&self) -> Result<(), AcquireError> {
        self.check_open()?;
        self.start().map_err(|error| StoreError::new(error).into())
    }

    fn check_open(&self) -> Result<(), AcquireError> {
        match *self.closed.borrow() {
            true => Err(AcquireError::Closed),
            false => Ok(()),
        }
    }

    /// Refuses new claims, and releases everything. Returns what could not be released by the
    /// deadline.
    pub(super) async fn shutdown(&self, deadline: Instant) -> Vec<Arc<Lease>> {
        self.closed.send_replace(true);
        self.keeper.shutdown(deadline).await
    }

    /// A lease for a claim. The keeper knows the lease before anything is sent; dropping the grant
    /// releases it.
    fn lease(self: &Arc<Self>, claim: &Claim, units: Units) -> RedisGrant {
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

    pub(super) async fn acquire(self: Arc<Self>, claim: Claim) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        self.open()?;
        // From here on, a drop releases what was claimed.
        let grant = self.lease(&claim, units);
        // A shutdown that has missed this lease has set `closed` before this check.
        self.check_open()?;
        let answer = match claim.wait() {
            None => self.try_once(&grant.lease).await?,
            // Boxed, so that the future of a claim that does not wait stays small.
            Some(wait) => Box::pin(self.wait(&grant.lease, wait)).await?,
        };
        self.check_open()?;
        match answer {
            // The claim was granted, but this future was not polled before the lease ended.
            Acquired::Granted { .. } if grant.is_lost() => {
                Err(StoreError::new(Error::Timeout(self.times.lease)).into())
            }
            Acquired::Granted { held, .. } => Ok(Permit::new(grant, units, held)),
            Acquired::Full { held } => Err(AcquireError::full(&claim, held)),
            Acquired::QueueFull => Err(AcquireError::QueueFull),
            Acquired::Queued { .. } => Err(AcquireError::TimedOut),
        }
    }

    /// Acquires without waiting. If the key is full while this process is releasing units of the
    /// key, the claim is tried once more: a request that a client has just finished should not stop
    /// its next one. If there is no time for a second try, the first answer stands.
    async fn try_once(&self, lease: &Arc<Lease>) -> Result<Acquired, AcquireError> {
        let deadline = Instant::now() + self.times.budget();
        let released = self.keeper.released(&lease.name());
        let claim = || dispatch::Claim {
            lease: Arc::clone(lease),
            position: None,
            deadline,
        };
        let first = self.dispatch.acquire(claim()).await;
        let first = first.map_err(StoreError::new)?;
        let Acquired::Full { .. } = first else {
            return Ok(first);
        };
        let second = timeout_at(deadline.into(), async {
            let name = lease.name();
            let settled = self.keeper.settled(Arc::clone(&name)).await;
            match settled || self.keeper.released(&name) != released {
                true => self.dispatch.acquire(claim()).await.ok(),
                false => None,
            }
        });
        Ok(second.await.ok().flatten().unwrap_or(first))
    }

    /// Waits in the queue until the claim is granted, the wait is over or the store shuts down.
    async fn wait(&self, lease: &Arc<Lease>, wait: Wait) -> Result<Acquired, AcquireError> {
        let slot = self
            .notifications
            .register(lease.permit.serial, self.max_waiting);
        let slot = slot.ok_or(AcquireError::Overloaded)?;
        let mut closed = self.closed.subscribe();
        let granted = wait::granted(&self.dispatch, self.times, lease, slot, wait);
        // Not `tokio::select!`: when its task has used up its budget (`tokio::task::coop`), that
        // polls nothing, and a try that is polled later would be sent first.
        match select(pin!(granted), pin!(closed.wait_for(|closed| *closed))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(AcquireError::Closed),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSemaphore")
            .field("prefix", &self.prefix)
            .field("lease", &self.times.lease)
            .finish_non_exhaustive()
    }
}

/// The grant of a permit from Redis. Dropping it releases its lease if the lease was granted, or if
/// an acquire of it may have run.
struct RedisGrant {
    lease: Arc<Lease>,
    store: Arc<Store>,
}

impl Grant for RedisGrant {
    fn token(&self) -> u64 {
        self.lease.token()
    }

    fn loss(&self) -> &Loss {
        &self.lease.loss
    }

    /// Also checks this process's own clock, for a lease whose end the keeper has not reported yet.
    fn is_lost(&self) -> bool {
        self.lease.loss.is_set() || self.lease.is_past(self.store.times.now())
    }

    fn release(&self) -> BoxFuture<bool> {
        if self.lease.is_released() {
            return Box::pin(ready(false));
        }
        let (answer, held) = oneshot::channel();
        self.store.keeper.release(&self.lease, Some(answer));
        Box::pin(async move { held.await.unwrap_or(false) })
    }
}

impl Drop for RedisGrant {
    fn drop(&mut self) {
        self.store.keeper.release(&self.lease, None);
    }
}
