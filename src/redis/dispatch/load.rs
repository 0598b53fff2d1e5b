//! How much is in flight, and how long round trips take.

use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Units of claims that may be in flight at a time with a call for each claim. With 16 tasks, batches
/// beyond 8 units complete 1.5 times the pairs/s of single calls (`benches/redis`); with
/// fewer tasks the switch to the keeper's thread costs more than batches save.
const MAX_ALONE: usize = 8;

/// Claims that may be in flight at a time on several nodes: as many as batches carry over a long link
/// to one server. With the default timeout so many wait for a node that does not answer only if it
/// gets 4,000 claims/s.
const MAX_ON_NODES: usize = 1_024;

/// Units of heavy claims that may be in flight at a time on several nodes: as many as 8 claims of the
/// greatest weight have. If one node gets all of them at once, it answers others some 10 ms later.
const MAX_HEAVY: usize = 8_000;

/// The units of a heavy claim that is not answered count for this part of a call's timeout. After that
/// its node is far or dead, rather than busy with them: so a dead node takes no room from the others
/// unless it gets ten times [`MAX_HEAVY`] per timeout, and a slow one is not sent much more than it can do.
pub(super) const BUSY: u32 = 10;

/// How much is in flight to one server.
pub(super) struct Load {
    /// To all servers: if claims are many in all, it pays that those of one server travel together.
    alone: Arc<AtomicUsize>,
    /// Units of claims that may be in flight alone.
    most_alone: usize,
    together: AtomicUsize,
}

/// How much is in flight to several nodes, of which nothing is known.
pub(super) struct NodesLoad {
    claims: Semaphore,
    heavy: Semaphore,
}

impl Default for NodesLoad {
    fn default() -> Self {
        Self {
            claims: Semaphore::new(MAX_ON_NODES),
            heavy: Semaphore::new(MAX_HEAVY),
        }
    }
}

/// Counts units as in flight until it is dropped.
pub(super) struct InFlight<'a> {
    count: &'a AtomicUsize,
    units: usize,
}

/// Counts a claim as in flight on one of several nodes until it is dropped.
pub(super) struct OnNodes<'a> {
    /// The units of a heavy claim, which count only for a while, see [`BUSY`].
    pub(super) units: Option<SemaphorePermit<'a>>,
    _claim: Option<SemaphorePermit<'a>>,
}

impl Load {
    /// `alone` counts the units that are sent alone to any server. If each call waits for replicas, all
    /// but one claim travel together: a call waits for those before it on its connection.
    pub(super) fn new(alone: &Arc<AtomicUsize>, is_confirmed: bool) -> Self {
        Self {
            alone: Arc::clone(alone),
            most_alone: if is_confirmed { 1 } else { MAX_ALONE },
            together: AtomicUsize::new(0),
        }
    }

    /// Lets a claim be sent alone, unless many are in flight or earlier claims wait for a batch.
    pub(super) fn alone(&self, weight: u32) -> Option<InFlight<'_>> {
        let units = weight as usize;
        if self.together.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let in_flight = InFlight::new(&self.alone, units);
        let sum = self.alone.load(Ordering::Relaxed);
        // A claim heavier than the maximum is sent alone too, if nothing else is in flight.
        (sum <= self.most_alone || sum == units).then_some(in_flight)
    }

    /// Counts a claim that is sent in a batch.
    pub(super) fn together(&self) -> InFlight<'_> {
        InFlight::new(&self.together, 1)
    }
}

impl NodesLoad {
    /// Waits until a claim may be sent alone to one of several nodes. Light claims do not wait for the
    /// units of heavy ones.
    pub(super) async fn enter(&self, weight: u32) -> OnNodes<'_> {
        let units = match weight as usize {
            0..=MAX_ALONE => None,
            _ => self.heavy.acquire_many(weight).await.ok(),
        };
        OnNodes {
            units,
            _claim: self.claims.acquire().await.ok(),
        }
    }
}

impl<'a> InFlight<'a> {
    fn new(count: &'a AtomicUsize, units: usize) -> Self {
        count.fetch_add(units, Ordering::Relaxed);
        Self { count, units }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.units, Ordering::Relaxed);
    }
}

/// How long a round trip takes.
#[derive(Default)]
pub(super) struct RoundTrip(Mutex<Estimate>);

/// The smoothed round trip and its variation, as TCP estimates them (RFC 6298), and the shortest
/// recent one: the time of the network, without that of a busy server.
#[derive(Default)]
struct Estimate {
    smoothed: Duration,
    variation: Duration,
    shortest: [Option<Duration>; 2],
    since: Option<Instant>,
}

/// A shortest round trip counts for this time at least, and for twice this time at most.
const MEMORY: Duration = Duration::from_secs(10);

impl RoundTrip {
    pub(super) fn observe(&self, sample: Duration) {
        self.0.lock().observe(sample, Instant::now());
    }

    /// An upper bound of nearly every round trip: smoothed plus four variations, as RFC 6298 has it.
    pub(super) fn usual(&self) -> Duration {
        let estimate = self.0.lock();
        estimate.smoothed + estimate.variation * 4
    }

    /// The shortest recent round trip.
    pub(super) fn shortest(&self) -> Duration {
        let shortest = self.0.lock().shortest;
        shortest.into_iter().flatten().min().unwrap_or_default()
    }
}

impl Estimate {
    fn observe(&mut self, sample: Duration, now: Instant) {
        let Some(since) = self.since else {
            *self = Self {
                smoothed: sample,
                variation: sample / 2,
                shortest: [Some(sample), None],
                since: Some(now),
            };
            return;
        };
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(sample)) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
        if now.saturating_duration_since(since) > MEMORY {
            self.shortest = [None, self.shortest[0]];
            self.since = Some(now);
        }
        let shortest = self.shortest[0].map_or(sample, |shortest| shortest.min(sample));
        self.shortest[0] = Some(shortest);
    }
}

#[cfg(test)]
mod tests;
