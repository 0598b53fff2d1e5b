//! Times the permits of a layer, and tells refused clients when to try again.

use super::{
    ages::Ages,
    seen::{KEYS, KeyHash, Seen},
};
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

/// Mean hold in seconds below which only one of [`SPARSE`] permits is timed, because they are
/// frequent.
const OFTEN: f64 = 0.005;

const SPARSE: u32 = 16;

/// A claim that was refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) hash: KeyHash,
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

/// What one layer knows of its permits and refusals.
pub(crate) struct Retry {
    hasher: RandomState,
    start: Instant,
    /// For each key, or keys with the same hash: whether permits are so short that only a few are
    /// timed.
    sparse: Box<[AtomicBool]>,
    seen: Mutex<Seen>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            start: Instant::now(),
            sparse: (0..KEYS).map(|_| AtomicBool::new(false)).collect(),
            seen: Mutex::default(),
        }
    }
}

impl Retry {
    /// The hash of the key alone. On the path of every claim.
    #[inline]
    pub(crate) fn key(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key.as_bytes())
    }

    pub(crate) fn hash(&self, policy: &Policy, key: u64) -> KeyHash {
        let policy = self.hasher.hash_one(policy.as_str());
        KeyHash { policy, key }
    }

    /// Times a permit that was just granted, or skips it: see [`SPARSE`].
    #[inline]
    pub(crate) fn time(self: &Arc<Self>, permit: &Permit, policy: &Policy, key: u64) {
        let sparse = self.sparse(key).load(Relaxed);
        if !sparse || is_chosen() {
            let hash = self.hash(policy, key);
            let hold = Hold::begin(Arc::clone(self), hash, sparse);
            permit.keep(Box::new(hold));
        }
    }

    fn sparse(&self, key: u64) -> &AtomicBool {
        &self.sparse[key as usize % KEYS]
    }

    /// A timed permit has ended.
    fn ended(&self, hash: KeyHash, since: Duration, of: u32) {
        let now = self.start.elapsed();
        let held = now.saturating_sub(since).as_secs_f64();
        let mut seen = self.seen.lock();
        if of == 1 {
            seen.held(hash).end(since, now);
        }
        let mean = seen.mean(hash);
        mean.add(held);
        let is_sparse = mean.get() < OFTEN && held < OFTEN;
        self.sparse(hash.key).store(is_sparse, Relaxed);
        if let Some((_, schedule)) = seen.own(hash) {
            schedule.mean.add(held);
            schedule.admitted(since.as_secs_f64(), of);
        }
    }

    /// Seconds after which a refused client should try again.
    pub(crate) fn refused(&self, refused: Refused) -> u64 {
        let now = self.start.elapsed();
        let mut seen = self.seen.lock();
        if refused.limit == 0 {
            return seen.outage.next(now.as_secs_f64());
        }
        let mean = *seen.mean(refused.hash);
        // With few timed permits the least age is unknown.
        let held = match self.sparse(refused.hash.key).load(Relaxed) {
            true => Ages::default(),
            false => *seen.held(refused.hash),
        };
        seen.schedule(refused.hash, mean, now.as_secs_f64()).next(
            now,
            held,
            refused.limit,
            refused.weight,
        )
    }

    /// Seconds after which a client should try again if no full limit refused it.
    pub(crate) fn failed(&self) -> u64 {
        let now = self.start.elapsed().as_secs_f64();
        self.seen.lock().outage.next(now)
    }
}

/// Times a permit, which keeps it and drops it when it ends.
struct Hold {
    retry: Arc<Retry>,
    hash: KeyHash,
    since: Duration,
    /// The number of permits that this one stands for.
    of: u32,
}

impl Hold {
    fn begin(retry: Arc<Retry>, hash: KeyHash, is_sparse: bool) -> Self {
        let since = retry.start.elapsed();
        let of = if is_sparse { SPARSE } else { 1 };
        if of == 1 {
            retry.seen.lock().held(hash).begin(since);
        }
        Self {
            retry,
            hash,
            since,
            of,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.retry.ended(self.hash, self.since, self.of);
    }
}

/// Chooses one of [`SPARSE`] permits, spread so that layers that alternate on one thread all get a
/// share.
fn is_chosen() -> bool {
    thread_local! {
        static TURN: Cell<u32> = const { Cell::new(0) };
    }
    let turn = TURN.get().wrapping_add(0x9E37_79B9);
    TURN.set(turn);
    turn < u32::MAX / SPARSE
}
