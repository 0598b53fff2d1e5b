//! The grant behind a permit of this process.

use super::{
    holders::{Details, Holding},
    key_semaphore::Refusal,
    queue::Acquired,
    shard::Entry,
};
use crate::{
    observe::Store,
    semaphore::{
        AcquireError, BoxFuture, Grant, Loss, Permit, PermitLost, Policy, SemaphoreId, StoreError,
        Units,
    },
    sync::AtomicU64,
};
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire, Relaxed},
    },
};

/// A permit for units acquired from an entry. It is listed for operators if it has details.
///
/// Always inlined, so that the grant is not copied, which would cost a tenth of an acquire and its
/// release.
#[inline(always)]
pub(super) fn permit(
    entry: &Arc<Entry>,
    units: Units,
    acquired: &Acquired,
    details: Option<Arc<Details>>,
) -> Permit {
    let grant = MemoryGrant::new(Arc::clone(entry), units, acquired, details.is_some());
    let (policy, held) = (entry.policy.clone(), acquired.held);
    let permit = Permit::granted(grant, Store::Memory, policy, units, held);
    if let Some(details) = details {
        entry.semaphore.queue.lock().list(details, &permit);
    }
    permit
}

/// A permit that its receiver counts.
#[inline(always)]
pub(super) fn uncounted(
    entry: Arc<Entry>,
    units: Units,
    acquired: &Acquired,
    is_listed: bool,
) -> Permit {
    let policy = entry.policy.clone();
    let grant = MemoryGrant::new(entry, units, acquired, is_listed);
    Permit::uncounted(grant, Store::Memory, policy, units, acquired.held)
}

/// Units of a key, released once: by `release` or by the drop.
struct MemoryGrant {
    entry: Arc<Entry>,
    /// How many units are held; 0 after the release.
    weight: AtomicU64,
    token: u64,
    loss: Loss,
    is_listed: bool,
}

impl MemoryGrant {
    #[inline(always)]
    fn new(entry: Arc<Entry>, units: Units, acquired: &Acquired, is_listed: bool) -> Self {
        Self {
            entry,
            weight: AtomicU64::new(units.weight.into()),
            token: acquired.token,
            loss: Loss::default(),
            is_listed,
        }
    }

    fn grow_now(&self, units: Units) -> Result<(), AcquireError> {
        self.change_weight(|weight| weight)?;
        let acquired = self.entry.semaphore.try_acquire(units);
        acquired.map_err(|refusal| full(units.limit, refusal))?;
        let grown = self.change_weight(|weight| weight + u64::from(units.weight));
        // It was released meanwhile.
        grown.inspect_err(|_| self.entry.release(units.weight))
    }

    fn shrink_now(&self, units: u32) -> Result<(), AcquireError> {
        self.change_weight(|weight| weight - u64::from(units))?;
        self.entry.release(units);
        Ok(())
    }

    /// Changes the weight, unless the permit is released.
    fn change_weight(&self, change: impl Fn(u64) -> u64) -> Result<(), AcquireError> {
        let change = |weight| (weight != 0).then(|| change(weight));
        let changed = self.weight.fetch_update(AcqRel, Acquire, change);
        let lost = |_| StoreError::new(PermitLost).into();
        changed.map(drop).map_err(lost)
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
        Some(self.weight.load(Acquire) as u32)
    }

    fn grow(&self, units: Units) -> BoxFuture<Result<(), AcquireError>> {
        Box::pin(ready(self.grow_now(units)))
    }

    fn shrink(&self, units: u32) -> Result<BoxFuture<()>, AcquireError> {
        self.shrink_now(units)?;
        Ok(Box::pin(ready(())))
    }

    fn release(&self) -> BoxFuture<bool> {
        let weight = self.weight.swap(0, AcqRel) as u32;
        if weight != 0 {
            self.entry.release(weight);
        }
        Box::pin(ready(weight != 0))
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        if self.is_listed {
            let is_it = |holding: &Holding| holding.token == Some(self.token);
            self.entry.semaphore.queue.lock().unlist(is_it);
        }
        let weight = self.weight.load(Relaxed) as u32;
        if weight != 0 {
            self.entry.release(weight);
        }
    }
}
