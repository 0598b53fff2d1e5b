//! The grant behind a permit of this process.

use super::{holders::Details, key_semaphore::Refusal, queue::Acquired, shard::Entry};
use crate::{
    observe::Store,
    semaphore::{
        AcquireError, BoxFuture, Grant, Loss, Permit, PermitLost, Policy, SemaphoreId, StoreError,
        Units,
    },
    sync::Mutex,
};
use std::{future::ready, mem, sync::Arc};

/// A permit for units acquired from an entry. It is listed for operators if it has details.
///
/// Always inlined, so that the grant is not copied, which would cost a tenth of an acquire and its
/// release.
#[inline(always)]
pub(super) fn permit(
    entry: Arc<Entry>,
    units: Units,
    acquired: &Acquired,
    policy: Policy,
    details: Option<Arc<Details>>,
) -> Permit {
    match details {
        None => new(entry, units, acquired, policy, false),
        Some(details) => listed(&entry, units, acquired, policy, details),
    }
}

#[cold]
fn listed(
    entry: &Arc<Entry>,
    units: Units,
    acquired: &Acquired,
    policy: Policy,
    details: Arc<Details>,
) -> Permit {
    let permit = new(Arc::clone(entry), units, acquired, policy, true);
    entry.holders().add(details, &permit);
    permit
}

#[inline(always)]
fn new(
    entry: Arc<Entry>,
    units: Units,
    acquired: &Acquired,
    policy: Policy,
    is_listed: bool,
) -> Permit {
    let grant = MemoryGrant {
        entry,
        weight: Mutex::new(units.weight),
        token: acquired.token,
        loss: Loss::default(),
        is_listed,
    };
    Permit::granted(grant, Store::Memory, policy, units, acquired.held)
}

/// Units of a key, released once: by `release` or by the drop.
struct MemoryGrant {
    entry: Arc<Entry>,
    /// How many units are held; 0 after the release.
    weight: Mutex<u32>,
    token: u64,
    loss: Loss,
    is_listed: bool,
}

impl MemoryGrant {
    fn grow_now(&self, units: Units) -> Result<(), AcquireError> {
        if *self.weight.lock() == 0 {
            return Err(StoreError::new(PermitLost).into());
        }
        // Not under the lock of `weight`: other code takes that lock while the entry is locked.
        let acquired = self.entry.try_acquire(units);
        acquired.map_err(|refusal| full(units.limit, refusal))?;
        let mut weight = self.weight.lock();
        if *weight == 0 {
            // The permit was released during the acquire.
            drop(weight);
            self.entry.release(units.weight);
            return Err(StoreError::new(PermitLost).into());
        }
        *weight += units.weight;
        Ok(())
    }

    fn shrink_now(&self, units: u32) -> Result<(), AcquireError> {
        let mut weight = self.weight.lock();
        if *weight == 0 {
            return Err(StoreError::new(PermitLost).into());
        }
        *weight -= units;
        // Notifies waiters without holding the lock.
        drop(weight);
        self.entry.release(units);
        Ok(())
    }
}

/// Has the default policy: the permit replaces it by its own.
fn full(limit: u32, refusal: Refusal) -> AcquireError {
    AcquireError::Full {
        policy: Policy::DEFAULT,
        limit,
        held: match refusal {
            Refusal::Full(held) => held,
            Refusal::Retired => 0,
        },
    }
}

impl Grant for MemoryGrant {
    fn token(&self) -> Option<u64> {
        Some(self.token)
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn semaphore_id(&self) -> Option<SemaphoreId> {
        Some(self.entry.semaphore_id())
    }

    fn weight(&self) -> Option<u32> {
        Some(*self.weight.lock())
    }

    fn grow(&self, units: Units) -> BoxFuture<Result<(), AcquireError>> {
        Box::pin(ready(self.grow_now(units)))
    }

    fn shrink(&self, units: u32) -> Result<BoxFuture<()>, AcquireError> {
        self.shrink_now(units)?;
        Ok(Box::pin(ready(())))
    }

    fn release(&self) -> BoxFuture<bool> {
        let weight = mem::take(&mut *self.weight.lock());
        let was_held = weight != 0;
        if was_held {
            self.entry.release(weight);
        }
        Box::pin(ready(was_held))
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        if self.is_listed {
            self.entry.holders().forget(Some(self.token));
        }
        let weight = *self.weight.get_mut();
        if weight != 0 {
            self.entry.release(weight);
        }
    }
}
