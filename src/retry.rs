//! When a refused client should try again: a schedule of free slots for each key. The rule is in the docs of
//! [`Rejection`](crate::Rejection#when-to-try-again). Times are seconds since the creation of the layer.

use crate::semaphore::{Claim, Few, Permit, Policy};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    hash::BuildHasher,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::time::Instant;

/// Maximum of keys with a hold and a schedule of their own. Further keys share them.
const KEYS: usize = 1_024;

/// The hold of a policy while none has ended.
const UNSEEN: f64 = 0.5;

/// Longer holds count as this many seconds, so that a stream of hours does not send clients away for hours.
const LONGEST: f64 = 60.0;

/// A new hold has a weight of 1 / `MEMORY` in the mean, once this many were seen.
const MEMORY: u32 = 64;

/// Below this mean hold permits are frequent, so only one of [`SPARSE`] is timed.
const OFTEN: f64 = 0.005;
const SPARSE: u32 = 16;

/// How many flows of a key are told apart.
const FLOWS: usize = 64;

/// What one layer knows of its permits and refusals.
pub(crate) struct Retry {
    hasher: RandomState,
    start: Instant,
    /// Of keys and of policies.
    seen: LazyLock<Box<[Seen]>>,
    failures: Mutex<f64>,
}

#[derive(Default)]
struct Seen {
    is_sparse: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    /// The mean hold, and of how many.
    hold: Option<f64>,
    seen: u32,
    /// Timed permits that are held, and the last grant or end of one.
    held: u32,
    changed: f64,
    /// The next free slot.
    free: f64,
    /// Of a key: which of its flows have clients that were told to come back, their shares, and until when.
    flows: Vec<(u64, u32, f64)>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            start: Instant::now(),
            seen: LazyLock::new(|| (0..KEYS).map(|_| Seen::default()).collect()),
            failures: Mutex::default(),
        }
    }
}

impl Retry {
    /// The hash of the key; if the claim has a flow its lower half is of both, so that the crowd of one flow sends no
    /// other away. On the path of every claim.
    #[inline]
    pub(crate) fn key(&self, claim: &Claim) -> u64 {
        let key = self.hasher.hash_one(claim.key().as_bytes());
        match claim.flow() {
            None => key,
            Some(flow) => key >> 32 << 32 | self.hasher.hash_one((key, flow.as_bytes())) >> 32,
        }
    }

    /// Times a permit that was just granted at these limits, or skips it: see [`SPARSE`].
    #[inline]
    pub(crate) fn time<'a>(
        self: &Arc<Self>,
        permit: &Permit,
        limits: impl Iterator<Item = (&'a Policy, u64)>,
    ) {
        let of = limits.map(|(policy, key)| self.find(policy, key));
        let of = of.filter(|of| !self.seen[of[0]].is_sparse.load(Relaxed) || is_chosen());
        let of: Few<[usize; 2]> = of.collect();
        if !of.is_empty() {
            let (retry, since) = (Arc::clone(self), self.now());
            of.iter()
                .flatten()
                .for_each(|at| self.seen[*at].begin(since));
            permit.keep(Hold { retry, of, since });
        }
    }

    /// Seconds after which a refused client should try again. `share`: that of its flow; 0 if it has none.
    pub(crate) fn refused(
        &self,
        policy: &Policy,
        key: u64,
        (limit, weight, share): (u32, u32, u32),
    ) -> u64 {
        if limit == 0 {
            return self.failed();
        }
        let (now, flow, [flows, _]) = (self.now(), key, self.find(policy, key >> 32));
        let [key, policy] = self.find(policy, key);
        let hold = self.seen[policy].times.lock().hold.unwrap_or(UNSEEN);
        let hold = self.seen[key].hold(hold, now);
        let places = f64::from(limit) / f64::from(weight.max(1));
        // The square-root staffing rule: holds are random, so a return finds room only if some is left over.
        let margin = 1.0 + 1.25 / places.sqrt();
        let turns = match share {
            0 => 1.0,
            share => self.seen[flows].turns(flow, share, now),
        };
        let (first, apart) = (
            (hold * margin).max(1.0),
            hold.max(1.0) * margin / places * turns,
        );
        // Slots of other keys, which are seldom in use, serve for the further parts of a second.
        let parts = (1.0 / hold).floor().clamp(1.0, 32.0);
        let part = (now.fract() * parts) as usize;
        let last = (hold * 20.0).clamp(60.0, 600.0);
        let schedule = &self.seen[(key + part) % KEYS].times;
        let after = self.next(&mut schedule.lock().free, first, apart, last);
        if share > 0 {
            self.seen[flows].told(flow, share, now + after as f64);
        }
        after
    }

    /// Seconds after which a client should try again if no full limit refused it.
    pub(crate) fn failed(&self) -> u64 {
        self.next(&mut self.failures.lock(), 1.0, 0.1, 30.0)
    }

    /// Takes the next free slot of a schedule whose slots are so far apart, from the first to the last. Returns whole
    /// seconds from now.
    fn next(&self, free: &mut f64, first: f64, apart: f64, last: f64) -> u64 {
        let now = self.now();
        let mut slot = free.max(now + first);
        if slot > now + last {
            let random = self.hasher.hash_one(slot.to_bits()) as f64 / u64::MAX as f64;
            slot = now + first + apart * random;
        }
        *free = slot + apart;
        // The sum of two times may round down.
        (slot - now + 1e-6) as u64
    }

    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Where the key and its policy are seen.
    fn find(&self, policy: &Policy, key: u64) -> [usize; 2] {
        let policy = self.hasher.hash_one(policy.as_str());
        [policy ^ key, policy].map(|hash| hash as usize % KEYS)
    }
}

impl Seen {
    /// The mean hold, but at least the time since the last change while permits are held. If few are timed that time is
    /// not known.
    fn hold(&self, unseen: f64, now: f64) -> f64 {
        let times = self.times.lock();
        let is_known = times.held > 0 && !self.is_sparse.load(Relaxed);
        let unchanged = if is_known { now - times.changed } else { 0.0 };
        times.hold.unwrap_or(unseen).max(unchanged.min(LONGEST))
    }

    /// Of how many slots of a key one is this flow's. Beside others it has its share of them.
    fn turns(&self, flow: u64, share: u32, now: f64) -> f64 {
        let flows = &mut self.times.lock().flows;
        flows.retain(|(other, _, until)| *other != flow && *until > now);
        let others: u32 = flows.iter().map(|(_, share, _)| share).sum();
        1.0 + f64::from(others) / f64::from(share)
    }

    /// A client of this flow was told to come back then.
    fn told(&self, flow: u64, share: u32, until: f64) {
        let flows = &mut self.times.lock().flows;
        if flows.len() < FLOWS {
            flows.push((flow, share, until));
        }
    }

    fn begin(&self, now: f64) {
        let mut times = self.times.lock();
        (times.held, times.changed) = (times.held + 1, now);
    }

    fn end(&self, since: f64, now: f64) {
        let (mut times, hold) = (self.times.lock(), now - since);
        (times.held, times.changed) = (times.held - 1, now);
        times.seen = (times.seen + 1).min(MEMORY);
        let mean = times.hold.unwrap_or_default();
        let mean = mean + (hold.min(LONGEST) - mean) / f64::from(times.seen);
        times.hold = Some(mean);
        let is_sparse = mean < OFTEN && hold < OFTEN;
        self.is_sparse.store(is_sparse, Relaxed);
    }
}

/// A timed permit has one of these, and drops it when it ends.
struct Hold {
    retry: Arc<Retry>,
    of: Few<[usize; 2]>,
    since: f64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (seen, now) = (&self.retry.seen, self.retry.now());
        let at = self.of.iter().flatten();
        at.for_each(|at| seen[*at].end(self.since, now));
    }
}

/// Chooses one of [`SPARSE`] permits, spread so that layers that alternate on one thread all get a share.
fn is_chosen() -> bool {
    thread_local! {
        static TURN: Cell<u32> = const { Cell::new(0) };
    }
    let turn = TURN.get().wrapping_add(0x9E37_79B9);
    TURN.set(turn);
    turn < u32::MAX / SPARSE
}
