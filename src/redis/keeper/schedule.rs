//! The refresh schedule: the permits that this process holds, spread over a refresh interval.

use super::{pulse::Gap, suspension::Suspension};
use crate::redis::{
    clock::{SLOTS, Times},
    lease::Lease,
};
use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    mem,
    ops::Range,
    sync::Arc,
    time::Instant,
};

/// Permits by the name of their semaphore.
type Leases = HashMap<Arc<str>, Vec<Arc<Lease>>>;

/// The held permits. A refresh interval is divided into slots, so that the work is even. All permits
/// of a semaphore are in the same slot, so that one command refreshes them.
pub(super) struct Schedule {
    times: Times,
    slots: Vec<Leases>,
    hasher: RandomState,
    /// The slot that is due next, and when.
    next: (usize, Instant),
    /// Leases whose refresh may not have been answered yet, by serial: their deadlines are watched.
    watched: HashMap<u64, Watched>,
    /// Refreshes that failed, and when they are sent again.
    retries: Vec<Arc<Lease>>,
    retry_at: Instant,
    failures: u32,
    /// The last one.
    suspension: Option<Suspension>,
    /// How many leases have a slot, and how many were released since the last sweep.
    adopted: usize,
    released: usize,
}

/// The fewest releases before a sweep.
const MIN_RELEASED: usize = 1_024;

struct Watched {
    lease: Arc<Lease>,
    /// The lease's deadline when the refresh was sent. A different deadline now means that the lease
    /// was refreshed.
    deadline: u64,
}

/// Slots between two tries of a failed refresh, at most: twelve in a lease.
const MAX_PAUSE: u32 = 4;

impl Schedule {
    pub(super) fn new(times: Times) -> Self {
        let now = Instant::now();
        Self {
            times,
            slots: (0..SLOTS).map(|_| Leases::new()).collect(),
            hasher: RandomState::new(),
            next: (0, now + times.slot_interval()),
            watched: HashMap::new(),
            retries: Vec::new(),
            retry_at: now,
            failures: 0,
            suspension: None,
            adopted: 0,
            released: 0,
        }
    }

    /// A lease was released, which may be in a slot. A slot is visited once per refresh interval, which
    /// may be hours; so after as many releases as there are leases in slots, all slots are swept.
    pub(super) fn released(&mut self) {
        self.released += 1;
        if self.released >= self.adopted.max(MIN_RELEASED) {
            self.released = 0;
            self.adopted = self.all().len();
        }
    }

    /// Puts granted leases into slots. Returns those whose refresh cannot wait until the slot is due:
    /// they were granted from a queue, are degraded, or were claimed before a suspension.
    pub(super) fn adopt(&mut self, leases: Vec<Arc<Lease>>) -> Vec<Arc<Lease>> {
        let mut urgent = Vec::new();
        self.adopted += leases.len();
        for lease in leases {
            let suspension = self.suspension.as_ref();
            let was_before = suspension.is_some_and(|it| it.advance(&lease));
            if was_before || lease.is_provisional() || lease.is_degraded() {
                urgent.push(Arc::clone(&lease));
            }
            let name = lease.name();
            let slot = self.hasher.hash_one(&name) % u64::from(SLOTS);
            let entry = self.slots[slot as usize].entry(name);
            lease.share_name(entry.key());
            entry.or_default().push(lease);
        }
        urgent
    }

    /// Takes note of what happened between two ticks. Returns whether all leases have to be refreshed.
    pub(super) fn note(&mut self, gap: Gap, ticks: Range<Instant>) -> bool {
        if let Some(suspension) = Suspension::new(self.times, gap, ticks) {
            for lease in self.all() {
                suspension.advance(&lease);
            }
            self.suspension = Some(suspension);
        }
        if gap != Gap::None {
            self.retries.clear();
        }
        gap != Gap::None
    }

    /// The leases whose refresh failed, if it is to be sent again now.
    pub(super) fn retries(&mut self, now: Instant) -> Vec<Arc<Lease>> {
        match now >= self.retry_at {
            true => mem::take(&mut self.retries),
            false => Vec::new(),
        }
    }

    /// The leases in slots that are due.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<Lease>> {
        let mut due = Vec::new();
        // After a pause of this process all slots may be due, but each only once.
        for _ in 0..SLOTS {
            let (slot, at) = self.next;
            if now < at {
                return due;
            }
            due.extend(self.slot(slot));
            self.next = ((slot + 1) % SLOTS as usize, at + self.times.slot_interval());
        }
        self.next.1 = self.next.1.max(now);
        due
    }

    /// When the next slot is due.
    pub(super) fn next(&self) -> Instant {
        self.next.1
    }

    /// The leases of a slot. Removes those that were released.
    fn slot(&mut self, slot: usize) -> Vec<Arc<Lease>> {
        let mut live = Vec::new();
        self.slots[slot].retain(|_, leases| {
            leases.retain(|lease| !lease.is_released());
            live.extend(leases.iter().cloned());
            !leases.is_empty()
        });
        live
    }

    /// The leases of all slots.
    pub(super) fn all(&mut self) -> Vec<Arc<Lease>> {
        (0..SLOTS as usize)
            .flat_map(|slot| self.slot(slot))
            .collect()
    }

    /// A refresh of these leases is about to be sent.
    pub(super) fn watch(&mut self, leases: &[Arc<Lease>]) {
        let watched = leases.iter().map(|lease| {
            let watched = Watched {
                deadline: lease.deadline(),
                lease: Arc::clone(lease),
            };
            (lease.serial, watched)
        });
        self.watched.extend(watched);
    }

    /// A refresh is completed. The leases in `failed` have no answer, so they may or may not be held.
    pub(super) fn refreshed(&mut self, failed: Vec<Arc<Lease>>) {
        if failed.is_empty() {
            self.failures = 0;
            return;
        }
        let pause = (1 << self.failures.min(2)).min(MAX_PAUSE);
        self.failures += 1;
        // Later failures do not put off the retry that is due already.
        if self.retries.is_empty() {
            self.retry_at = Instant::now() + self.times.tick() * pause;
        }
        let known: HashSet<u64> = self.retries.iter().map(|lease| lease.serial).collect();
        let new = |lease: &Arc<Lease>| !known.contains(&lease.serial);
        self.retries.extend(failed.into_iter().filter(new));
    }

    /// A refresh that was sent again is completed, with the same outcome. What the keeper doubts
    /// counts for these leases, because the server could be reached neither time.
    pub(super) fn refreshed_again(
        &mut self,
        failed: Vec<Arc<Lease>>,
        kept_until: impl Fn(&Lease) -> u64,
    ) {
        if let Some(suspension) = &self.suspension {
            let expire = |lease: &Arc<Lease>| suspension.expire(lease, kept_until(lease));
            failed.iter().for_each(expire);
        }
        self.refreshed(failed);
    }

    /// Reports permits lost whose deadline has passed without a good refresh.
    pub(super) fn expire(&mut self, now: Instant, kept_until: impl Fn(&Lease) -> u64) {
        let now = self.times.micros(now);
        self.watched.retain(|_, Watched { lease, deadline }| {
            if lease.is_released() || lease.is_outside() || lease.deadline() != *deadline {
                return false;
            }
            lease.expire(now, kept_until(lease));
            !lease.is_outside()
        });
    }
}

#[cfg(test)]
mod tests;
