//! Several semaphores, decided together.

use super::{grant::permit, holders::Details, queue::Acquired, shard::Entry};
use crate::semaphore::{AcquireError, Claim, Permit, Units};
use std::sync::Arc;

/// Acquires for all claims or for none, in one step: their semaphores are locked together for a few
/// instructions. All threads lock them in the same order, so they cannot deadlock.
pub(super) fn try_all(
    claims: &[Claim],
    entry: impl Fn(&Claim) -> Arc<Entry>,
    details: impl Fn(&Claim) -> Option<Arc<Details>>,
) -> Result<Permit, AcquireError> {
    let units = claims.iter().map(Claim::units);
    let units = units.collect::<Result<Vec<_>, _>>()?;
    loop {
        let entries: Vec<_> = claims.iter().map(&entry).collect();
        let acquired = lock_all(&entries, claims, &units).inspect_err(|_| {
            // Entries that were inserted for this claim alone are idle again.
            entries.iter().for_each(|entry| entry.evict_if_idle());
        });
        if let Some(acquired) = acquired? {
            let mut levels = Acquireds(entries.into_iter().zip(units).zip(acquired));
            let permits = claims.iter().filter_map(|claim| {
                let (policy, details) = (claim.policy().clone(), details(claim));
                let ((entry, units), acquired) = levels.0.next()?;
                Some(permit(entry, units, &acquired, policy, details))
            });
            return Permit::join(permits.collect());
        }
    }
}

/// Units without permits yet. They are released if making the permits panics, as a user's recorder
/// may.
struct Acquireds<I: Iterator<Item = ((Arc<Entry>, Units), Acquired)>>(I);

impl<I: Iterator<Item = ((Arc<Entry>, Units), Acquired)>> Drop for Acquireds<I> {
    fn drop(&mut self) {
        for ((entry, units), _) in self.0.by_ref() {
            entry.release(units.weight);
        }
    }
}

/// What was acquired at each level. `None`: an entry is retired, and its key has to be looked up again.
fn lock_all(
    entries: &[Arc<Entry>],
    claims: &[Claim],
    units: &[Units],
) -> Result<Option<Vec<Acquired>>, AcquireError> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by_key(|&at| Arc::as_ptr(&entries[at]));
    let locked = order.into_iter().map(|at| Some((at, entries[at].lock()?)));
    let Some(mut locked) = locked.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    // From narrow to wide again.
    locked.sort_unstable_by_key(|(at, _)| *at);
    let levels = locked.iter().zip(units);
    let grants = levels
        .clone()
        .zip(claims)
        .map(|(((_, locked), units), claim)| {
            let full = |held| AcquireError::full(claim, held);
            locked.admits(*units).map_err(full)
        });
    let grants = grants.collect::<Result<_, _>>()?;
    levels.for_each(|((_, locked), units)| locked.acquire(*units));
    Ok(Some(grants))
}
