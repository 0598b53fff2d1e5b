//! What all handles and permits of a store share, and the grant behind a permit.

use super::{
    check::together::Checks,
    clock::{ServerClock, Times},
    dispatch::Dispatch,
    error::Error,
    keeper::Keeper,
    lease::Lease,
    notify::Notifications,
    outage::{Outage, probe},
    protocol::{Of, PermitId, Protocol, Tag, name},
};
use crate::observe::{Meter, Store::Redis as REDIS};
use crate::semaphore::{AcquireError, Claim, Grant, Permit, SemaphoreId, StoreError, Units};
use futures_util::future::join4;
use parking_lot::Mutex;
use std::{
    io, mem,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::sync::{mpsc, watch};

/// What all handles and permits of a store share. The keeper ends after the last of them is dropped.
pub(super) struct Store {
    pub(super) prefix: String,
    database: i64,
    /// What the server calls itself, once a check has seen it: two stores with other addresses of one server
    /// find out that they are one.
    server: OnceLock<String>,
    pub(super) times: Times,
    pub(super) dispatch: Dispatch,
    pub(super) keeper: Keeper,
    pub(super) notifications: Arc<Notifications>,
    pub(super) max_waiting: usize,
    pub(super) outage: Arc<Outage>,
    serial: AtomicU64,
    clock: Arc<ServerClock>,
    pub(super) closed: watch::Sender<bool>,
    pub(super) checks: Checks,
}

impl Store {
    pub(super) fn new(
        (prefix, database): (String, i64),
        times: Times,
        clock: Arc<ServerClock>,
        protocol: Protocol,
        (notifications, revoked): (Notifications, mpsc::UnboundedReceiver<u64>),
        max_waiting: usize,
        outage: Outage,
    ) -> Self {
        let watch = protocol.watch();
        let (dispatch, batches) = Dispatch::new(protocol, times, Arc::clone(&clock));
        let notifications = Arc::new(notifications);
        let listener = Arc::clone(&notifications).listen();
        let (outage, closed) = (Arc::new(outage), watch::Sender::new(false));
        let (attempts, is_closed) = (Arc::clone(dispatch.attempts()), closed.subscribe());
        let probes = probe(Arc::clone(&outage), attempts, is_closed);
        let others = async move {
            join4(batches, listener, watch, probes).await;
        };
        Self {
            prefix,
            database,
            server: OnceLock::new(),
            times,
            keeper: Keeper::new(
                dispatch.attempts(),
                times,
                &outage,
                (Arc::clone(&notifications), revoked),
                others,
            ),
            dispatch,
            notifications,
            max_waiting,
            serial: AtomicU64::new(1),
            clock,
            outage,
            closed,
            checks: Checks::default(),
        }
    }

    /// The id of a semaphore of this store, by its name.
    pub(super) fn semaphore_id(&self, name: &str) -> SemaphoreId {
        match self.server.get() {
            Some(server) => SemaphoreId::new(format!("{server}/{} {name}", self.database)),
            None => SemaphoreId::new(format!("{self:p} {name}")),
        }
    }

    /// What the server calls itself.
    pub(super) fn is_at(&self, server: &str) {
        self.server.get_or_init(|| server.to_owned());
    }

    pub(super) fn protocol(&self) -> &Protocol {
        &self.dispatch.attempts().protocol
    }

    /// Without the server there is nothing that could fail.
    pub(super) fn check_well(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Subscribes until then, to see whether this client may.
    pub(super) async fn check_messages(&self, deadline: Instant) -> Result<(), Error> {
        self.notifications.check(deadline).await
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
    pub(super) fn open(&self) -> Result<(), AcquireError> {
        self.check_open()?;
        self.start().map_err(|error| StoreError::new(error).into())
    }

    pub(super) fn check_open(&self) -> Result<(), AcquireError> {
        match *self.closed.borrow() {
            true => Err(AcquireError::Closed),
            false => Ok(()),
        }
    }

    /// Waits for something unless the store shuts down meanwhile.
    pub(super) async fn unless_closed<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, AcquireError> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            done = wait => Ok(done),
            _ = closed.wait_for(|closed| *closed) => Err(AcquireError::Closed),
        }
    }

    /// Refuses new claims, and releases everything. Returns what could not be released by the
    /// deadline.
    pub(super) async fn shutdown(&self, deadline: Instant) -> Vec<Arc<Lease>> {
        self.closed.send_replace(true);
        self.keeper.shutdown(deadline).await
    }

    /// Serials that follow each other, for as many permits.
    pub(super) fn serials(&self, count: usize) -> Range<u64> {
        let start = self.serial.fetch_add(count as u64, Ordering::Relaxed);
        start..start + count as u64
    }

    /// A lease for a claim. The keeper knows the lease before anything is sent; dropping the grant
    /// releases it.
    pub(super) fn lease(self: &Arc<Self>, claim: &Claim, units: Units, serial: u64) -> RedisGrant {
        let name = name(&self.prefix, claim.policy(), claim.key());
        let of = Of::Claim(claim.label().map(Arc::from));
        let permit = PermitId::new(serial, units.limit, units.weight).tagged(self.tag(of));
        let lease = Lease::new(name, permit).strict(claim.is_strict());
        self.register(lease.metered(Meter::of(REDIS, claim.policy())))
    }

    /// A lease of more units for the permit of another one.
    pub(super) fn heavier(self: &Arc<Self>, lease: &Arc<Lease>, units: Units) -> RedisGrant {
        let serial = self.serials(1).start;
        let permit = PermitId::new(serial, units.limit, units.weight);
        let permit = permit.tagged(self.tag(Of::Added(lease.serial)));
        self.register(Lease::new(lease.name(), permit).adding_to(lease))
    }

    /// What operators see of what is claimed now.
    fn tag(&self, of: Of) -> Tag {
        let since = self.clock.now_ms();
        Tag { since, of }
    }

    fn register(self: &Arc<Self>, lease: Lease) -> RedisGrant {
        let lease = Arc::new(lease);
        self.keeper.register(&lease);
        RedisGrant {
            lease,
            store: Arc::clone(self),
            added: OnceLock::new(),
        }
    }
}

/// The grant of a permit from Redis. Dropping it releases its lease if the lease was granted, or if
/// an acquire of it may have run.
pub(super) struct RedisGrant {
    pub(super) lease: Arc<Lease>,
    pub(super) store: Arc<Store>,
    /// What was added to it, if it has become heavier.
    pub(super) added: OnceLock<Added>,
}

/// Grants that add units to a permit.
pub(super) type Added = Arc<Mutex<Vec<RedisGrant>>>;

impl RedisGrant {
    /// The grants that have added units, which it has no more.
    pub(super) fn take_added(&self) -> Vec<Self> {
        let added = self.added.get();
        added.map_or_else(Vec::new, |added| mem::take(&mut *added.lock()))
    }

    /// The permit of a claim, with `held` units of the key in use.
    pub(super) fn permit(self, claim: &Claim, held: u32) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        if self.lease.is_released() {
            return Err(AcquireError::Revoked);
        }
        // The claim was granted, but its future was not polled before the lease ended.
        if self.is_lost() {
            let ended = Error::Expired(self.store.times.lease);
            return Err(StoreError::new(ended).into());
        }
        let policy = claim.policy().clone();
        Ok(Permit::granted(self, REDIS, policy, units, held))
    }
}

impl Drop for RedisGrant {
    fn drop(&mut self) {
        self.store.keeper.release(&self.lease, None);
        drop(self.take_added());
    }
}
