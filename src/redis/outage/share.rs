//! How many units of each key this process holds, while the store is unavailable.
//!
//! As long as all is well nothing is counted. When it is not any more, the keeper counts all permits
//! once, and from then on each permit counts itself when it is granted. A lease knows whether it is
//! counted, and its own lock orders the two, so each is counted once. A released one is not counted
//! any more, and a key without units is forgotten.

use crate::redis::lease::Lease;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// See the module docs.
#[derive(Default)]
pub(super) struct Counts {
    /// Whether anything may be counted.
    any: AtomicBool,
    keys: Mutex<HashMap<Arc<str>, u32>>,
    /// Until which alarm all permits have been counted.
    counted: watch::Sender<u64>,
}

/// What a claim wants of one key.
pub(super) struct Wanted {
    pub(super) name: Arc<str>,
    pub(super) units: u32,
    /// How many units are this process's share.
    pub(super) share: u32,
}

/// Units that are counted for a claim until it is dropped, but for those that were passed on to
/// leases.
pub(in crate::redis) struct Reservation<'a> {
    counts: &'a Counts,
    taken: Vec<(Arc<str>, u32)>,
    /// How many units of each level this process may still take.
    pub(super) left: Vec<u32>,
}

impl Counts {
    /// Counts all of these, and says so for the alarm.
    pub(super) fn count_all(&self, leases: &[Arc<Lease>], alarm: u64) {
        leases.iter().for_each(|lease| self.count(lease));
        self.counted.send_replace(alarm);
    }

    pub(super) fn is_counted(&self, alarm: u64) -> bool {
        *self.counted.borrow() >= alarm
    }

    /// Waits until all permits are counted.
    pub(super) async fn are_counted(&self, alarm: u64) {
        let mut counted = self.counted.subscribe();
        // The sender lives as long as `self`.
        let _ = counted.wait_for(|counted| *counted >= alarm).await;
    }

    /// Counts a lease that is granted, unless it is counted already.
    pub(super) fn count(&self, lease: &Lease) {
        let mut keys = self.keys.lock();
        // Before the lease's lock, so that whoever releases it afterwards finds it set.
        self.any.store(true, Ordering::Relaxed);
        if let Some((name, units)) = lease.count() {
            *keys.entry(name).or_default() += units;
        }
    }

    /// Counts leases that are granted if all of them are within the share, or none.
    pub(super) fn count_within(&self, leases: &[Arc<Lease>], wanted: &[Wanted]) -> bool {
        leases.iter().for_each(|lease| self.count(lease));
        let mut keys = self.keys.lock();
        let is_within = |level: &Wanted| keys.get(&level.name).is_none_or(|n| *n <= level.share);
        if wanted.iter().all(is_within) {
            return true;
        }
        for (name, units) in leases.iter().filter_map(|lease| lease.uncount()) {
            subtract(&mut keys, &name, units);
        }
        false
    }

    /// The lease was released.
    #[inline]
    pub(super) fn released(&self, lease: &Lease) {
        if self.any.load(Ordering::Relaxed) {
            self.forget(lease);
        }
    }

    #[cold]
    fn forget(&self, lease: &Lease) {
        let mut keys = self.keys.lock();
        if let Some((name, units)) = lease.uncount() {
            subtract(&mut keys, &name, units);
        }
        self.any.store(!keys.is_empty(), Ordering::Relaxed);
    }

    /// Reserves units at all levels, or at none.
    pub(super) fn take(&self, wanted: &[Wanted]) -> Option<Reservation<'_>> {
        let mut keys = self.keys.lock();
        let left = wanted.iter().map(|level| {
            let taken = keys.get(&level.name).copied().unwrap_or_default();
            level.share.checked_sub(taken.saturating_add(level.units))
        });
        let left = left.collect::<Option<_>>()?;
        let taken = wanted.iter().map(|level| {
            *keys.entry(Arc::clone(&level.name)).or_default() += level.units;
            (Arc::clone(&level.name), level.units)
        });
        Some(Reservation {
            counts: self,
            taken: taken.collect(),
            left,
        })
    }
}

/// Subtracts units of a key, and forgets a key that has none.
fn subtract(keys: &mut HashMap<Arc<str>, u32>, name: &str, units: u32) {
    let Some(count) = keys.get_mut(name) else {
        return;
    };
    *count = count.saturating_sub(units);
    if *count == 0 {
        keys.remove(name);
        // A process that met very many keys does not keep their memory.
        if keys.len() < keys.capacity() / 4 {
            keys.shrink_to(keys.len() * 2);
        }
    }
}

impl Reservation<'_> {
    /// Passes the units on to the leases of a permit, one for each level. A lease that was released
    /// or counted meanwhile leaves its units to be subtracted.
    pub(super) fn pass_on(mut self, leases: &[Arc<Lease>]) {
        let keys = self.counts.keys.lock();
        self.counts.any.store(true, Ordering::Relaxed);
        let mut leases = leases.iter();
        let remains = |lease: &Arc<Lease>| lease.count().is_none();
        self.taken.retain(|_| leases.next().is_none_or(remains));
        drop(keys);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let mut keys = self.counts.keys.lock();
        for (name, units) in self.taken.drain(..) {
            subtract(&mut keys, &name, units);
        }
    }
}

#[cfg(test)]
mod tests;
