//! What a permit from Redis can do: be lost, change its weight, be released.

use super::{
    lease::Lease,
    protocol::Acquired,
    shared::{Added, RedisGrant, Store},
};
use crate::semaphore::{AcquireError, BoxFuture, Grant, Loss, PermitLost, Policy, StoreError};
use std::{future::ready, sync::Arc};
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
        self.lease.loss.is_set() || self.lease.is_past(self.store.times.now())
    }

    fn resize(&self, weight: u32) -> BoxFuture<Result<(), AcquireError>> {
        let added = Arc::clone(self.added.get_or_init(Added::default));
        let (store, lease) = (Arc::clone(&self.store), Arc::clone(&self.lease));
        Box::pin(async move { store.resize(&lease, &added, weight).await })
    }

    fn release(&self) -> BoxFuture<bool> {
        if self.lease.is_released() {
            return Box::pin(ready(false));
        }
        let (answer, held) = oneshot::channel();
        self.store.keeper.release(&self.lease, Some(answer));
        // A change of the weight that has the lock releases them.
        if let Some(Ok(mut added)) = self.added.get().map(|added| added.try_lock()) {
            added.clear();
        }
        Box::pin(async move { held.await.unwrap_or(false) })
    }
}

impl Store {
    async fn resize(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        added: &Added,
        weight: u32,
    ) -> Result<(), AcquireError> {
        let mut added = added.lock().await;
        let more = added.iter().map(|grant| grant.lease.permit().units());
        let now = lease.permit().units() + more.sum::<u32>();
        let answer = match lease.is_released() || lease.is_lost() {
            true => Err(StoreError::new(PermitLost).into()),
            false if weight > now => match self.add(lease, weight - now).await {
                Ok(grant) => {
                    added.push(grant);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            false => {
                self.remove(lease, &mut added, now - weight);
                Ok(())
            }
        };
        // A release that came meanwhile could not clear it.
        if lease.is_released() {
            added.clear();
        }
        answer
    }

    /// Acquires more units for a permit, as a claim that does not wait.
    async fn add(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        units: u32,
    ) -> Result<RedisGrant, AcquireError> {
        let grant = self.heavier(lease, units);
        self.check_open()?;
        match self.try_once(&grant.lease).await? {
            Acquired::Granted { .. } => Ok(grant),
            Acquired::Full { held } => Err(full(lease, held)),
            Acquired::QueueFull | Acquired::Queued { .. } => Err(full(lease, 0)),
        }
    }

    /// Releases units of a permit: first what was added last.
    fn remove(&self, lease: &Arc<Lease>, added: &mut Vec<RedisGrant>, mut units: u32) {
        while units > 0 {
            let last = added.last().map(|grant| &grant.lease);
            let of_last = last.map(|lease| lease.permit().units());
            if of_last.is_some_and(|of_last| of_last <= units) {
                units -= of_last.unwrap_or_default();
                added.pop();
                continue;
            }
            let lease = last.unwrap_or(lease);
            let keep = lease.permit().units() - units;
            if let Some(part) = lease.split(keep) {
                self.keeper.release(&Arc::new(part), None);
            }
            return;
        }
    }
}

/// The permit itself names its policy.
fn full(lease: &Lease, held: u32) -> AcquireError {
    AcquireError::Full {
        policy: Policy::DEFAULT,
        limit: lease.permit().limit,
        held,
    }
}
