//! What a permit from Redis can do: be lost, change its weight, be released.

use super::{
    lease::Lease,
    protocol::Acquired,
    shared::{Added, RedisGrant, Store},
};
use crate::semaphore::{
    AcquireError, BoxFuture, Grant, Loss, PermitLost, Policy, SemaphoreId, StoreError, Units,
    future::all_held,
};
use std::{future::ready, slice, sync::Arc, time::Instant};
use tokio::sync::oneshot;

impl Grant for RedisGrant {
    fn token(&self) -> u64 {
        self.lease.token()
    }

    fn loss(&self) -> &Loss {
        &self.lease.loss
    }

    /// Also checks this process's own clock, for a lease whose end the keeper has not reported yet.
    fn is_lost(&self) -> bool {
        let (now, outage) = (self.store.times.now(), &self.store.outage);
        let is_past = |grant: &Self| grant.lease.is_past(now, outage.kept_until(&grant.lease));
        self.lease.loss.is_set() || is_past(self) || self.any_added(is_past)
    }

    fn is_degraded(&self) -> bool {
        let is_degraded = |grant: &Self| grant.lease.is_degraded();
        is_degraded(self) || self.any_added(is_degraded)
    }

    fn semaphore_id(&self) -> Option<SemaphoreId> {
        Some(self.store.semaphore_id(&self.lease.name()))
    }

    fn weight(&self) -> Option<u32> {
        if self.lease.is_released() {
            return Some(0);
        }
        let of_added = |added: &Added| added.lock().iter().map(RedisGrant::units).sum();
        Some(self.units() + self.added.get().map_or(0, of_added))
    }

    fn grow(&self, units: Units) -> BoxFuture<Result<(), AcquireError>> {
        if self.is_lost() || self.lease.is_released() {
            return Box::pin(ready(Err(lost())));
        }
        let is_silent = self.store.outage.is_silent(&self.lease.name());
        if is_silent || self.is_degraded() {
            // Not before the server has all of its units, and answers.
            let error = self.store.outage.last_error(&self.lease.name());
            return Box::pin(ready(Err(error.into())));
        }
        let added = Arc::clone(self.added.get_or_init(Added::default));
        let (store, lease) = (Arc::clone(&self.store), Arc::clone(&self.lease));
        Box::pin(async move {
            let grant = store.add(&lease, units).await?;
            let mut added = added.lock();
            // A release that comes later finds it.
            if lease.is_released() {
                drop(added);
                return Err(lost());
            }
            added.push(grant);
            Ok(())
        })
    }

    fn shrink(&self, units: u32) -> Result<BoxFuture<()>, AcquireError> {
        let (grants, part) = self.remove(units).ok_or_else(lost)?;
        let whole = grants.iter().map(|grant| &grant.lease);
        let releases: Vec<_> = whole
            .chain(&part)
            .map(|lease| self.released(lease))
            .collect();
        Ok(Box::pin(async move {
            // Units that were lost are free as well.
            let _ = all_held(releases).await;
        }))
    }

    fn release(&self) -> BoxFuture<bool> {
        if self.lease.is_released() {
            return Box::pin(ready(false));
        }
        let mut releases = vec![self.released(&self.lease)];
        // After that, so that a change that goes on meanwhile adds nothing.
        let added = self.take_added();
        releases.extend(added.iter().map(|grant| self.released(&grant.lease)));
        Box::pin(all_held(releases))
    }
}

fn lost() -> AcquireError {
    StoreError::new(PermitLost).into()
}

impl RedisGrant {
    /// How many units its own lease has.
    fn units(&self) -> u32 {
        self.lease.permit().units()
    }

    fn any_added(&self, is_so: impl Fn(&Self) -> bool) -> bool {
        self.added
            .get()
            .is_some_and(|added| added.lock().iter().any(is_so))
    }

    /// Takes units away, first what was added last: whole grants, and a part of the one before.
    /// `None`: the permit is released.
    fn remove(&self, mut units: u32) -> Option<(Vec<Self>, Option<Arc<Lease>>)> {
        if self.lease.is_released() {
            return None;
        }
        let mut added = self.added.get_or_init(Added::default).lock();
        let mut whole = Vec::new();
        while let Some(grant) = added.pop_if(|last| last.units() <= units) {
            units -= grant.units();
            whole.push(grant);
        }
        let last = added.last().unwrap_or(self);
        let part = match units {
            0 => None,
            _ => Some(last.lease.split(last.units() - units)?),
        };
        Some((whole, part.map(Arc::new)))
    }

    /// Queues the release of a lease. The future says whether it was still held.
    fn released(&self, lease: &Arc<Lease>) -> impl Future<Output = bool> + use<> {
        let (answer, held) = oneshot::channel();
        self.store.keeper.release(lease, Some(answer));
        async move { held.await.unwrap_or(false) }
    }
}

impl Store {
    /// Acquires more units for a permit, as a claim that does not wait.
    async fn add(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        units: Units,
    ) -> Result<RedisGrant, AcquireError> {
        self.open()?;
        let grant = self.heavier(lease, units);
        self.check_open()?;
        let deadline = Instant::now() + self.times.budget();
        match self.try_once(&grant.lease, deadline).await? {
            Acquired::Granted(_) => {
                self.granted(slice::from_ref(&grant.lease), None).await?;
                Ok(grant)
            }
            Acquired::Full { held, .. } => Err(full(units, held)),
            Acquired::Revoked => Err(lost()),
            Acquired::QueueFull { .. } | Acquired::Queued { .. } => Err(full(units, 0)),
        }
    }
}

/// The permit itself names its policy.
fn full(units: Units, held: u32) -> AcquireError {
    AcquireError::Full {
        policy: Policy::DEFAULT,
        limit: units.limit,
        held,
    }
}
