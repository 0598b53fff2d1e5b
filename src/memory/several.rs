//! Several semaphores, decided together.

use super::{grant::permit, holders::Details, queue::Acquired, shard::Entry};
use crate::semaphore::{AcquireError, Claim, Permit, Units};
use std::sync::Arc;

/// What one of the claims asks of its entry.
struct Level {
    /// Which of the claims it is.
    at: usize,
    entry: Arc<Entry>,
    units: Units,
}

/// Acquires for all claims or for none, in one step: their semaphores are locked together for a few
/// instructions. All threads lock them in the same order, so they cannot deadlock.
pub(super) fn try_all(
    claims: &[Claim],
    entry: impl Fn(&Claim) -> Arc<Entry>,
    details: impl Fn(&Claim) -> Option<Arc<Details>>,
) -> Result<Permit, AcquireError> {
    loop {
        let level = |(at, claim): (usize, &Claim)| {
            let (units, entry) = (claim.units()?, entry(claim));
            Ok(Level { at, entry, units })
        };
        let levels = claims.iter().enumerate().map(level);
        let mut levels = levels.collect::<Result<Vec<_>, AcquireError>>()?;
        levels.sort_unstable_by_key(|level| Arc::as_ptr(&level.entry));
        let acquired = lock_all(&levels).map_err(|(at, held)| {
            // The narrower ones may have been looked up for nothing.
            levels.iter().for_each(|level| level.entry.evict_if_idle());
            AcquireError::full(&claims[at], held)
        });
        if let Some(acquired) = acquired? {
            let mut permits: Vec<_> = levels.iter().zip(acquired).collect();
            permits.sort_unstable_by_key(|(level, _)| level.at);
            let permits = permits.into_iter().map(|(level, acquired)| {
                let details = details(&claims[level.at]);
                permit(&level.entry, level.units, &acquired, details)
            });
            return Permit::join(permits.collect());
        }
    }
}

/// What was acquired at each level; if nothing, the first level that refuses, and how many units are held
/// there. `None`: an entry is retired, and its key has to be looked up again.
fn lock_all(levels: &[Level]) -> Result<Option<Vec<Acquired>>, (usize, u32)> {
    let locked = levels.iter().map(|level| level.entry.semaphore.lock());
    let Some(mut locked) = locked.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let refused = levels.iter().zip(&locked).filter_map(|(level, locked)| {
        let held = locked.admits(level.units).err()?;
        Some((level.at, held))
    });
    if let Some(refused) = refused.min() {
        return Err(refused);
    }
    let acquired = levels
        .iter()
        .zip(&mut locked)
        .map(|(level, locked)| locked.acquire(level.units).map_err(|held| (level.at, held)));
    acquired.collect::<Result<_, _>>().map(Some)
}
