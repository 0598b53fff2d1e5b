//! The grant behind a permit of this process, and how it comes into being: at all of its limits or at none.

use super::{holders::Details, key_semaphore::Refusal, queue::Acquired, shard::Entry};
use crate::{
    observe::Store,
    semaphore::{
        AcquireError, BoxFuture, Claim, Few, Grant, Loss, MAX_CLAIMS, Permit, PermitLost, Resizing,
        SemaphoreId, StoreError, Units,
    },
    sync::{AtomicU64, Mutex},
};
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire, Relaxed},
    },
};

/// What is asked of an entry.
pub(super) struct Wanted {
    pub(super) entry: Arc<Entry>,
    pub(super) units: Units,
}

/// Acquires of all these entries or of none, in one step: of one by a compare-and-swap; several are locked together
/// for a few instructions. What refuses is the first that does, in their order.
pub(super) fn acquire_all(wanted: &[Wanted]) -> Result<Few<Acquired>, (usize, Refusal)> {
    match wanted {
        [one] => match one.entry.semaphore.try_acquire(one.units) {
            Ok(acquired) => Ok(Few::One([acquired])),
            Err(refusal) => Err((0, refusal)),
        },
        several => acquire_several(several).map(Few::Several),
    }
}

/// All threads lock entries in the order of their addresses, so they cannot deadlock.
fn acquire_several(wanted: &[Wanted]) -> Result<Vec<Acquired>, (usize, Refusal)> {
    let mut order: [u8; MAX_CLAIMS] = std::array::from_fn(|at| at as u8);
    let order = &mut order[..wanted.len()];
    order.sort_unstable_by_key(|at| Arc::as_ptr(&wanted[usize::from(*at)].entry));
    let mut acquired = vec![Acquired::default(); wanted.len()];
    match lock_each(wanted, order, None, &mut acquired) {
        Some(refused) => Err(refused),
        None => Ok(acquired),
    }
}

/// Locks the first of these, and then the others; unlocks them in the opposite order, after each has acquired if none
/// refuses. Returns what refuses.
fn lock_each(
    wanted: &[Wanted],
    order: &[u8],
    refused: Option<(usize, Refusal)>,
    acquired: &mut [Acquired],
) -> Option<(usize, Refusal)> {
    let Some((first, others)) = order.split_first() else {
        return refused;
    };
    let at = usize::from(*first);
    let Wanted { entry, units } = &wanted[at];
    let Some(mut locked) = entry.semaphore.lock() else {
        return Some((at, Refusal::Retired));
    };
    let admitted = locked.admits(*units);
    let own = admitted.err().map(|refusal| (at, refusal));
    let both = refused.into_iter().chain(own);
    let refused = both.min_by_key(|(at, _)| *at);
    let refused = lock_each(wanted, others, refused, acquired);
    if let (None, Ok(grant)) = (&refused, admitted) {
        acquired[at] = locked.acquire(grant);
    }
    refused
}

/// Units of a key, which its drop releases.
pub(super) struct Level {
    entry: Arc<Entry>,
    /// How many units are held; 0 after the release. Of one that is listed its details have the number.
    weight: AtomicU64,
    token: u64,
    /// How many units of the key were held when they were granted, and the limit in force then.
    held: u32,
    limit: u32,
    /// The limit of the claim.
    claimed: u32,
    details: Option<Arc<Details>>,
}

impl Level {
    #[inline(always)]
    pub(super) fn new(wanted: Wanted, acquired: Acquired, details: Option<Arc<Details>>) -> Self {
        Self {
            entry: wanted.entry,
            weight: AtomicU64::new(wanted.units.weight.into()),
            token: acquired.token,
            held: acquired.held,
            limit: acquired.limit,
            claimed: wanted.units.limit,
            details,
        }
    }

    fn units(&self) -> &AtomicU64 {
        match &self.details {
            None => &self.weight,
            Some(details) => &details.held,
        }
    }

    pub(super) fn weight(&self) -> u32 {
        self.units().load(Acquire) as u32
    }

    /// Changes the weight, and returns the one before, unless the units are released.
    fn set_weight(&self, weight: u32) -> Result<u32, AcquireError> {
        let change = |before| (before != 0).then_some(u64::from(weight));
        let changed = self.units().fetch_update(AcqRel, Acquire, change);
        changed.map(|before| before as u32).map_err(|_| lost())
    }

    /// Whether they were held until now.
    fn release(&self) -> bool {
        let weight = self.units().swap(0, AcqRel) as u32;
        if weight != 0 {
            self.entry.release(weight);
        }
        weight != 0
    }
}

impl Drop for Level {
    #[inline]
    fn drop(&mut self) {
        if let Some(details) = &self.details {
            self.entry.unlist(details.serial);
            self.release();
            return;
        }
        let weight = self.weight.load(Relaxed) as u32;
        if weight != 0 {
            self.entry.release(weight);
        }
    }
}

/// A permit of these levels, for these claims.
pub(super) fn permit(claims: &[Claim], levels: Few<Level>) -> Permit {
    let listed = levels.iter().filter_map(|level| level.details.clone());
    // All levels of a store are listed, or none is.
    let listed: Vec<_> = listed.collect();
    let permit = unlisted(claims, levels);
    for (number, details) in listed.iter().enumerate() {
        details.belongs_to(&permit, number);
    }
    permit
}

/// The same of levels that are not listed.
///
/// Always inlined, so that the grant is not copied.
#[inline(always)]
pub(super) fn unlisted(claims: &[Claim], levels: Few<Level>) -> Permit {
    let grant = MemoryGrant {
        levels,
        loss: Loss::default(),
        changing: Mutex::default(),
    };
    let shown = |grant: &MemoryGrant, at: usize| (grant.levels[at].held, grant.levels[at].limit);
    Permit::granted(grant, Store::Memory, claims, shown)
}

struct MemoryGrant {
    levels: Few<Level>,
    /// That of a permit that is not listed.
    loss: Loss,
    /// Held by who changes weights, so that nobody else does.
    changing: Mutex<()>,
}

impl MemoryGrant {
    fn change(&self, wanted: &[(usize, Units)]) -> Result<(), AcquireError> {
        let changing = self.changing.lock();
        let mut freed = Vec::new();
        let mut free = |entry: &Arc<Entry>, units| {
            entry.semaphore.free(units);
            freed.push(Arc::clone(entry));
        };
        let grown = self.grow(wanted, &mut free);
        let changed = grown.and_then(|()| {
            wanted.iter().try_for_each(|(number, units)| {
                let level = &self.levels[*number];
                let before = level.set_weight(units.weight)?;
                free(&level.entry, before.saturating_sub(units.weight));
                Ok(())
            })
        });
        drop(changing);
        // Only now, because a waker may change the permit.
        freed.iter().for_each(|entry| entry.release(0));
        changed
    }

    /// Adds units to the levels that are too light: to all or to none. The units of one that is released
    /// meanwhile are freed too.
    fn grow(
        &self,
        wanted: &[(usize, Units)],
        mut free: impl FnMut(&Arc<Entry>, u32),
    ) -> Result<(), AcquireError> {
        let (mut lighter, mut more) = (Vec::new(), Vec::new());
        for (number, Units { limit, weight }) in wanted {
            let level = &self.levels[*number];
            let before = level.weight();
            if before == 0 {
                return Err(lost());
            }
            if let added @ 1.. = weight.saturating_sub(before) {
                let (entry, units) = (
                    Arc::clone(&level.entry),
                    Units {
                        limit: *limit,
                        weight: added,
                    },
                );
                lighter.push((level, *weight));
                more.push(Wanted { entry, units });
            }
        }
        if more.is_empty() {
            return Ok(());
        }
        if self.loss().is_set() {
            return Err(lost());
        }
        acquire_all(&more).map_err(|(at, refusal)| {
            let Wanted { entry, .. } = &more[at];
            refusal.error(&entry.policy)
        })?;
        let grown = lighter.iter().zip(&more).map(|((level, weight), more)| {
            let grown = level.set_weight(*weight).map(drop);
            grown.inspect_err(|_| free(&more.entry, more.units.weight))
        });
        // Each, whatever becomes of the one before.
        grown.fold(Ok(()), Result::and)
    }
}

fn lost() -> AcquireError {
    StoreError::new(PermitLost).into()
}

impl Grant for MemoryGrant {
    fn token(&self, level: usize) -> Option<u64> {
        Some(self.levels[level].token)
    }

    fn loss(&self) -> &Loss {
        match &self.levels[0].details {
            None => &self.loss,
            Some(details) => &details.loss,
        }
    }

    fn weight(&self, level: usize) -> Option<u32> {
        Some(self.levels[level].weight())
    }

    fn limit(&self, level: usize) -> Option<u32> {
        let level = &self.levels[level];
        Some(level.entry.semaphore.limit().unwrap_or(level.claimed))
    }

    fn resize(&self, levels: Vec<(usize, Units)>) -> Resizing<'_> {
        Box::pin(async move { self.change(&levels) })
    }

    fn semaphore_id(&self, level: usize) -> Option<SemaphoreId> {
        Some(self.levels[level].entry.semaphore_id())
    }

    fn release(&self) -> BoxFuture<bool> {
        let released = self.levels.iter().map(Level::release);
        Box::pin(ready(released.fold(true, |all, was_held| all & was_held)))
    }
}
