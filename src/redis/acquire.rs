//! The way of a claim: one try, or the queue. Its [budget](super::clock::Times::budget) is one,
//! from its first byte to its answer.

use super::{
    dispatch,
    error::Error,
    lease::Lease,
    protocol::{Acquired, Position},
    store::Store,
};
use crate::semaphore::{AcquireError, BoxFuture, Claim, Grant, Loss, Permit, StoreError};
use std::{future::ready, sync::Arc, time::Instant};
use tokio::{sync::oneshot, time::timeout_at};

impl Store {
    pub(super) async fn acquire(self: Arc<Self>, claim: Claim) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        self.open()?;
        // From here on, a drop takes back what was asked.
        let grant = self.lease(&claim, units);
        // A shutdown that has not seen this lease was seen by it.
        self.check_open()?;
        let answer = match claim.wait() {
            None => self.try_once(&grant.lease).await?,
            // Boxed, so that claims that do not wait carry a small future around.
            Some(wait) => Box::pin(self.wait(&grant.lease, wait)).await?,
        };
        self.check_open()?;
        match answer {
            Acquired::Granted { held, .. } => Ok(Permit::new(grant, units, held)),
            Acquired::Full { held } => Err(AcquireError::Full {
                limit: units.limit,
                held,
            }),
            Acquired::QueueFull => Err(AcquireError::LineFull),
            Acquired::Queued { .. } => Err(AcquireError::TimedOut),
        }
    }

    /// Asks, and does not wait. Where there is no room, but this process was releasing some, it
    /// asks once more: what a client has just finished should not be in the way of its next
    /// request. If there is no time for that, the first answer stands.
    async fn try_once(&self, lease: &Arc<Lease>) -> Result<Acquired, AcquireError> {
        let deadline = Instant::now() + self.times.budget();
        let released = self.keeper.released(&lease.name());
        let first = self.ask(lease, None, deadline).await;
        let first = first.map_err(StoreError::new)?;
        let Acquired::Full { .. } = first else {
            return Ok(first);
        };
        let second = timeout_at(deadline.into(), async {
            let name = lease.name();
            let settled = self.keeper.settled(Arc::clone(&name)).await;
            match settled || self.keeper.released(&name) != released {
                true => self.ask(lease, None, deadline).await.ok(),
                false => None,
            }
        });
        Ok(second.await.ok().flatten().unwrap_or(first))
    }

    /// Asks the server. Over by the deadline, whatever happens.
    pub(super) async fn ask(
        &self,
        lease: &Arc<Lease>,
        position: Option<Position>,
        deadline: Instant,
    ) -> Result<Acquired, Error> {
        let claim = dispatch::Claim {
            lease: Arc::clone(lease),
            position,
            deadline,
        };
        let answer = timeout_at(deadline.into(), self.dispatch.acquire(claim)).await;
        answer.unwrap_or(Err(Error::Timeout(self.times.budget())))
    }
}

/// What a permit from Redis holds: a lease that is released when this is dropped, or taken back
/// if its acquire was only asked for.
pub(super) struct RedisGrant {
    pub(super) lease: Arc<Lease>,
    pub(super) store: Arc<Store>,
}

impl Grant for RedisGrant {
    fn token(&self) -> u64 {
        self.lease.token()
    }

    fn loss(&self) -> &Loss {
        &self.lease.loss
    }

    /// Also by this process's own clock, when the server could not be asked since the lease ended.
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
