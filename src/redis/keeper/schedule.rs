//! What this process holds, spread over a refresh interval.

use crate::redis::{
    clock::{SLOTS, Times},
    lease::Lease,
};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    mem,
    sync::Arc,
    time::Instant,
};

/// Permits by the name of their semaphore.
type Leases = HashMap<Arc<str>, Vec<Arc<Lease>>>;

/// Held permits by semaphore, each in a slot. A refresh interval has as many slots, so that the
/// work is even and one command serves all permits of a semaphore.
pub(super) struct Schedule {
    times: Times,
    slots: Vec<Leases>,
    hasher: RandomState,
    /// The slot that is due next, and when.
    next: (usize, Instant),
    /// Refreshes that were sent and not answered yet, so that the deadlines of their leases are
    /// watched.
    watched: Vec<Watched>,
    /// Refreshes that failed, and when they are sent again.
    retries: Vec<Arc<Lease>>,
    retry_at: Instant,
    failures: u32,
    /// How many leases have a slot, and how many were released since the last sweep.
    adopted: usize,
    released: usize,
}

/// Releases before a sweep, at least.
const MIN_RELEASED: usize = 1_024;

struct Watched {
    lease: Arc<Lease>,
    /// Its deadline when the refresh was sent: another one means that it was refreshed.
    deadline: u64,
    since: Instant,
    /// How long this process's clock stood still before, in microseconds.
    missed: u64,
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
            watched: Vec::new(),
            retries: Vec::new(),
            retry_at: now,
            failures: 0,
            adopted: 0,
            released: 0,
        }
    }

    /// A lease was released, which may have a slot. Slots are visited each refresh interval, which
    /// may be hours; so when as many were released as there are, all slots are swept.
    pub(super) fn released(&mut self) {
        self.released += 1;
        if self.released >= self.adopted.max(MIN_RELEASED) {
            self.released = 0;
            self.adopted = self.all().len();
        }
    }

    /// Gives a slot to what was granted. Returns what was granted from a queue: its refresh cannot
    /// wait for the slot.
    pub(super) fn adopt(&mut self, leases: Vec<Arc<Lease>>) -> Vec<Arc<Lease>> {
        let mut provisional = Vec::new();
        self.adopted += leases.len();
        for lease in leases {
            if lease.is_provisional() {
                provisional.push(Arc::clone(&lease));
            }
            let name = lease.name();
            let slot = self.hasher.hash_one(&name) % u64::from(SLOTS);
            let entry = self.slots[slot as usize].entry(name);
            lease.share_name(entry.key());
            entry.or_default().push(lease);
        }
        provisional
    }

    /// What is to be refreshed by now: the slots that are due, and refreshes that failed.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<Lease>> {
        let mut due = Vec::new();
        if now >= self.retry_at {
            due.append(&mut self.retries);
        }
        // After a pause of this process there may be many, but each only once.
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

    /// The leases of a slot that are not released.
    fn slot(&mut self, slot: usize) -> Vec<Arc<Lease>> {
        let mut live = Vec::new();
        self.slots[slot].retain(|_, leases| {
            leases.retain(|lease| !lease.is_released());
            live.extend(leases.iter().cloned());
            !leases.is_empty()
        });
        live
    }

    /// All that is held.
    pub(super) fn all(&mut self) -> Vec<Arc<Lease>> {
        (0..SLOTS as usize)
            .flat_map(|slot| self.slot(slot))
            .collect()
    }

    /// A refresh is about to be sent for these; `missed`: how many microseconds this process's
    /// clock stood still before.
    pub(super) fn watch(&mut self, leases: &[Arc<Lease>], missed: u64) {
        let since = Instant::now();
        let watched = leases.iter().map(|lease| Watched {
            deadline: lease.deadline(),
            lease: Arc::clone(lease),
            since,
            missed,
        });
        self.watched.extend(watched);
    }

    /// These were not refreshed, and it is unknown whether they are still held.
    pub(super) fn refreshed(&mut self, failed: Vec<Arc<Lease>>) {
        if failed.is_empty() {
            self.failures = 0;
            return;
        }
        let pause = (1 << self.failures.min(2)).min(MAX_PAUSE);
        self.failures += 1;
        self.retry_at = Instant::now() + self.times.tick() * pause;
        self.retries.extend(failed);
    }

    /// Reports permits lost whose deadline has passed without a good refresh.
    pub(super) fn expire(&mut self, now: Instant) {
        let (micros, timeout) = (self.times.micros(now), self.times.timeout);
        for watched in mem::take(&mut self.watched) {
            let Watched { lease, missed, .. } = &watched;
            if lease.is_released() || lease.is_lost() || lease.deadline() != watched.deadline {
                continue;
            }
            // A clock that jumped may have been set: that refresh then decides.
            let missed = if now >= watched.since + timeout {
                *missed
            } else {
                0
            };
            lease.expire(micros + missed);
            if !lease.is_lost() {
                self.watched.push(watched);
            }
        }
    }
}
