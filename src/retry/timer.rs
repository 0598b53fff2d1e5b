//! Times the permits of a layer, and tells refused clients when to try again.

use super::seen::{KeyHash, Seen};
use crate::semaphore::{Key, Permit, Policy};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Where the mean is shorter than this, permits come so often that one of [`SPARSE`] is timed.
const OFTEN: f64 = 0.005;

const SPARSE: u32 = 16;

/// A claim that was refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) hash: KeyHash,
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

/// What one layer has seen of its permits and refusals.
pub(crate) struct Retry {
    hasher: RandomState,
    start: Instant,
    /// Whether most permits end so soon that few need to be timed.
    is_sparse: AtomicBool,
    seen: Mutex<Seen>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            start: Instant::now(),
            is_sparse: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }
}

impl Retry {
    /// Part of every claim's way: the hash of the key alone.
    #[inline]
    pub(crate) fn key(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key.as_bytes())
    }

    pub(crate) fn hash(&self, policy: &Policy, key: u64) -> KeyHash {
        let policy = self.hasher.hash_one(policy.as_str());
        KeyHash { policy, key }
    }

    /// Times a permit that was just granted, or not: see [`SPARSE`].
    #[inline]
    pub(crate) fn time(
        self: &Arc<Self>,
        permit: &Permit,
        policy: &Policy,
        key: u64,
        max_hold: Option<Duration>,
    ) {
        let sparse = self.is_sparse.load(Relaxed);
        if !sparse || is_chosen() {
            let hash = self.hash(policy, key);
            let hold = Hold::begin(Arc::clone(self), hash, sparse, max_hold);
            permit.keep(Box::new(hold));
        }
    }

    /// A timed permit has ended.
    fn ended(&self, hash: KeyHash, since: Instant, held: f64, of: u32) {
        let since = since.duration_since(self.start).as_secs_f64();
        let mut seen = self.seen.lock();
        let mean = seen.mean(hash);
        mean.add(held);
        self.is_sparse.store(mean.get() < OFTEN, Relaxed);
        if let Some((_, schedule)) = seen.own(hash) {
            schedule.mean.add(held);
            schedule.admitted(since, of);
        }
    }

    /// After how many seconds a refused client should try again.
    pub(crate) fn refused(&self, refused: Refused) -> u64 {
        let now = self.start.elapsed().as_secs_f64();
        let mut seen = self.seen.lock();
        if refused.limit == 0 {
            return seen.outage.next(now);
        }
        let mean = *seen.mean(refused.hash);
        seen.schedule(refused.hash, mean, now)
            .next(now, refused.limit, refused.weight)
    }

    /// After how many seconds a client should try again whom no full limit has refused.
    pub(crate) fn failed(&self) -> u64 {
        let now = self.start.elapsed().as_secs_f64();
        self.seen.lock().outage.next(now)
    }
}

/// Times a permit: it is kept by the permit, and dropped with its last clone.
struct Hold {
    retry: Arc<Retry>,
    hash: KeyHash,
    since: Instant,
    /// How many permits this one stands for.
    of: u32,
    /// After which time the permit ends, although clones may still be there.
    max_hold: Option<Duration>,
}

impl Hold {
    fn begin(
        retry: Arc<Retry>,
        hash: KeyHash,
        is_sparse: bool,
        max_hold: Option<Duration>,
    ) -> Self {
        Self {
            retry,
            hash,
            since: Instant::now(),
            of: if is_sparse { SPARSE } else { 1 },
            max_hold,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let held = self.since.elapsed();
        let held = self.max_hold.map_or(held, |most| held.min(most));
        self.retry
            .ended(self.hash, self.since, held.as_secs_f64(), self.of);
    }
}

/// Whether it is the turn of one of [`SPARSE`]. Spread so that layers which take turns on one thread
/// each get theirs.
fn is_chosen() -> bool {
    thread_local! {
        static TURN: Cell<u32> = const { Cell::new(0) };
    }
    let turn = TURN.get().wrapping_add(0x9E37_79B9);
    TURN.set(turn);
    turn < u32::MAX / SPARSE
}
