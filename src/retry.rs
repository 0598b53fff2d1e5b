//! When a refused client should try again: a schedule of free slots for each key. The docs of
//! [`Rejection`](crate::Rejection#when-to-try-again) have its promise. Times are seconds since the creation of the
//! layer.
//!
//! - The *hold* of a key is the mean of the last 64 times for which its permits were held. Before the first permit has
//!   ended, it is the hold of the policy, or half a second. While permits are held, it is at least the time since
//!   the last grant or end of one. It is at most 60 s. If the holds are shorter than 5 ms, one permit in 16 is timed.
//! - The first slot is `hold × margin` from now, at least 1 s. Each further slot is `hold × margin × weight / limit`
//!   later. The `margin` is `1 + 1.25 / √(limit / weight)`: holds are random, so a returning client finds room only if
//!   some is left over.
//! - Clients return at the part of a second in which they were refused. So if holds are shorter than a second, each
//!   second is divided into the number of holds that fit into it, at most 32 parts. Each part has separate slots:
//!   `limit / margin` in each second.
//! - Each flow of a key has a separate schedule, so a crowded flow delays the clients of no other flow. Its slots are
//!   its share of the key's slots. Up to 64 flows share these: those with clients that were refused and are not due
//!   yet.
//! - A schedule ends after 20 holds, but not before 60 s, and at 600 s at the latest. Then it begins again, at a random
//!   time in its first slot.
//! - After a failure of the store or the loss of a permit, a single schedule for all keys has ten slots in a second,
//!   for 30 s. Under a limit of 0 each key has such a schedule.
//!
//! The table of keys is bounded, so that clients with many accounts cannot make it grow. Like a set-associative cache,
//! it maps each key to one set of a few places. A new key takes the place that has been idle longest: its key has no
//! permits, and all of its slots have passed. If no place is idle, the new key has no schedule. Its clients get the
//! first slot, by the hold of the policy, and no other key gets later slots because of it.

use crate::semaphore::{Claim, Few, Permit, Policy};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    hash::BuildHasher,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use tokio::time::Instant;

/// The number of sets, and of places in each: room for the times of 4,096 keys and policies.
const SETS: usize = 512;
const PLACES: usize = 8;

/// The assumed mean hold of a policy, in seconds, until one of its permits has ended.
const UNKNOWN_HOLD: f64 = 0.5;

/// Longer holds count as this many seconds, so that a stream of hours does not send clients away for hours.
const MAX_HOLD: f64 = 60.0;

/// Once this number of holds was seen, a new hold has a weight of 1 / `MAX_SEEN` in the mean.
const MAX_SEEN: u32 = 64;

/// If the mean hold is below this number of seconds, permits are frequent, so only one in [`SAMPLE`] is timed.
const SHORT_HOLD: f64 = 0.005;
const SAMPLE: u32 = 16;

/// The most flows that are tracked for one key.
const MAX_FLOWS: usize = 64;

/// A refused claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusedTerms {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
    /// The share of its flow, or 0 without a flow.
    pub(crate) share: u32,
}

/// The times of one layer's permits and refusals.
pub(crate) struct Retry {
    hasher: RandomState,
    start: Instant,
    /// The times of keys and of policies.
    sets: LazyLock<Box<[PlaceSet]>>,
    failures: Mutex<f64>,
}

/// The hash of a policy, or of a key under a policy. Never 0.
type Id = u64;

/// The places for the keys that hash to this set. Places are written under the lock, but can be found without it.
#[derive(Default)]
struct PlaceSet {
    /// The id in each place, or 0 if the place was never used.
    ids: [AtomicU64; PLACES],
    /// True if only one in [`SAMPLE`] permits is timed.
    are_sampled: [AtomicBool; PLACES],
    times: Mutex<Vec<Times>>,
}

#[derive(Default)]
struct Times {
    /// The mean hold, and the number of holds in it, which stops growing at `MAX_SEEN`.
    hold: Option<f64>,
    seen: u32,
    /// The number of timed permits that are held, and the time of the last grant or end of one.
    held: u32,
    changed: f64,
    /// The next free slot in each part of a second.
    free: Vec<f64>,
    /// For a key, its flows with clients that were asked to return.
    flows: Vec<FlowReturn>,
    /// The latest time at which a client was asked to return.
    until: f64,
}

/// A flow with a client that was asked to return.
struct FlowReturn {
    /// The hash of the flow.
    flow: u64,
    share: u32,
    /// The time of the return.
    until: f64,
}

/// The slots of a schedule, in seconds.
#[derive(Clone, Copy)]
struct Plan {
    /// From now to the first slot.
    first: f64,
    /// Between two slots.
    apart: f64,
    /// From now to the last slot, at most.
    last: f64,
}

/// The schedule after a failure of the store, and under a limit of 0.
const FAILED: Plan = Plan {
    first: 1.0,
    apart: 0.1,
    last: 30.0,
};

impl Default for Retry {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            start: Instant::now(),
            sets: LazyLock::new(|| (0..SETS).map(|_| PlaceSet::default()).collect()),
            failures: Mutex::default(),
        }
    }
}

impl Retry {
    /// Returns the hash of the key. If the claim has a flow, the lower half is a hash of key and flow, so that a crowd
    /// in one flow does not send other flows' clients away. Every claim runs this.
    #[inline]
    pub(crate) fn key(&self, claim: &Claim) -> u64 {
        let key = self.hasher.hash_one(claim.key().as_bytes());
        match claim.flow() {
            None => key,
            Some(flow) => key >> 32 << 32 | self.hasher.hash_one((key, flow.as_bytes())) >> 32,
        }
    }

    /// Times a permit that was just granted at these limits, or skips it: see [`SAMPLE`].
    #[inline]
    pub(crate) fn time_permit<'a>(
        self: &Arc<Self>,
        permit: &Permit,
        limits: impl Iterator<Item = (&'a Policy, u64)>,
    ) {
        let ids = limits.map(|(policy, key)| self.ids(policy, key));
        let ids = ids.filter(|[key, _]| !self.set(*key).is_sampled(*key) || is_chosen());
        let ids: Few<[Id; 2]> = ids.collect();
        if !ids.is_empty() {
            let (retry, since) = (Arc::clone(self), self.now());
            let begin = |id: Id| Some(id).filter(|id| self.set(*id).begin(*id, since));
            let timed = ids.iter().map(|ids| ids.map(begin)).collect();
            permit.keep(HoldTimer {
                retry,
                timed,
                since,
            });
        }
    }

    /// Returns the seconds after which a refused client should try again.
    pub(crate) fn refused(
        &self,
        policy: &Policy,
        key: u64,
        RefusedTerms {
            limit,
            weight,
            share,
        }: RefusedTerms,
    ) -> u64 {
        // With a flow, the upper half of the hash is the key's: all flows of the key are noted under it.
        let (now, flow, [flows_id, _]) = (self.now(), key, self.ids(policy, key >> 32));
        let [key, policy] = self.ids(policy, key);
        if limit == 0 {
            return self.next(key, now, 0, FAILED);
        }
        let mean = self.set(policy).with(policy, |times| times.hold);
        let mean = mean.flatten().unwrap_or(UNKNOWN_HOLD);
        let hold = self.set(key).hold(key, mean, now);
        // The number of such claims that have room together.
        let room = f64::from(limit) / f64::from(weight.max(1));
        // The square-root staffing rule: holds are random, so a returning client finds room only if some room is spare.
        let margin = 1.0 + 1.25 / room.sqrt();
        let flows = self.set(flows_id);
        let turns = match share {
            0 => 1.0,
            share => flows
                .take(flows_id, now, |times| times.turns(flow, share, now))
                .unwrap_or(1.0),
        };
        let parts = (1.0 / hold).floor().clamp(1.0, 32.0);
        let plan = Plan {
            first: (hold * margin).max(1.0),
            // If holds are shorter than a second, each part of a second has separate slots.
            apart: hold.max(1.0) * margin / room * turns,
            last: (hold * 20.0).clamp(60.0, 600.0),
        };
        let after = self.next(key, now, (now.fract() * parts) as usize, plan);
        if share > 0 {
            let until = now + after as f64;
            flows.with(flows_id, |times| times.note_return(flow, share, until));
        }
        after
    }

    /// Returns the seconds after which a client should try again if no full limit refused it.
    pub(crate) fn failed(&self) -> u64 {
        self.slot(&mut self.failures.lock(), self.now(), FAILED)
    }

    /// Takes the next free slot in a part of a key's schedule. A key without a place gets the first slot.
    fn next(&self, key: Id, now: f64, part: usize, plan: Plan) -> u64 {
        let taken = self.set(key).take(key, now, |times| {
            let parts = times.free.len().max(part + 1);
            times.free.resize(parts, 0.0);
            let after = self.slot(&mut times.free[part], now, plan);
            times.until = times.until.max(now + after as f64);
            after
        });
        taken.unwrap_or_else(|| self.slot(&mut 0.0, now, plan))
    }

    /// Takes the next free slot. Returns whole seconds from now.
    fn slot(&self, free: &mut f64, now: f64, Plan { first, apart, last }: Plan) -> u64 {
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

    /// Returns the ids of a key and of its policy.
    fn ids(&self, policy: &Policy, key: u64) -> [Id; 2] {
        let policy = self.hasher.hash_one(policy.as_str());
        [policy ^ key, policy].map(|hash| hash.max(1))
    }

    fn set(&self, id: Id) -> &PlaceSet {
        &self.sets[id as usize % SETS]
    }
}

impl PlaceSet {
    /// Returns the place of an id, if it has one.
    #[inline]
    fn find(&self, id: Id) -> Option<usize> {
        self.ids.iter().position(|other| other.load(Relaxed) == id)
    }

    #[inline]
    fn is_sampled(&self, id: Id) -> bool {
        let place = self.find(id);
        place.is_some_and(|place| self.are_sampled[place].load(Relaxed))
    }

    /// Accesses the times of an id. Returns `None` if it has no place.
    fn with<R>(&self, id: Id, look: impl FnOnce(&mut Times) -> R) -> Option<R> {
        let mut times = self.times.lock();
        let place = self.find(id)?;
        Some(look(&mut times[place]))
    }

    /// Accesses the times of an id, and gives it a place if it has none. Returns `None` if no place is idle.
    fn take<R>(&self, id: Id, now: f64, change: impl FnOnce(&mut Times) -> R) -> Option<R> {
        let mut times = self.times.lock();
        let place = self.find(id).or_else(|| self.admit(&mut times, id, now))?;
        Some(change(&mut times[place]))
    }

    /// Gives an id an unused place, or else the place that has been idle longest.
    fn admit(&self, times: &mut Vec<Times>, id: Id, now: f64) -> Option<usize> {
        let place = if times.len() < PLACES {
            times.push(Times::default());
            times.len() - 1
        } else {
            let idle = times.iter_mut().enumerate();
            let idle = idle.filter(|(_, times)| times.is_idle(now));
            let (place, times) =
                idle.min_by(|(_, one), (_, other)| one.last_use().total_cmp(&other.last_use()))?;
            *times = Times::default();
            place
        };
        self.are_sampled[place].store(false, Relaxed);
        self.ids[place].store(id, Relaxed);
        Some(place)
    }

    /// Returns the mean hold. While permits are held, it is at least the time since the last change. That time is not
    /// known if only a sample of permits is timed.
    fn hold(&self, id: Id, unseen: f64, now: f64) -> f64 {
        let is_sampled = self.is_sampled(id);
        let hold = self.with(id, |times| {
            let is_known = times.held > 0 && !is_sampled;
            let unchanged = if is_known { now - times.changed } else { 0.0 };
            times.hold.unwrap_or(unseen).max(unchanged.min(MAX_HOLD))
        });
        hold.unwrap_or(unseen)
    }

    /// Counts a permit. Returns true if its id has a place, which it then keeps until the permit ends.
    fn begin(&self, id: Id, now: f64) -> bool {
        let begun = self.take(id, now, |times| {
            (times.held, times.changed) = (times.held + 1, now);
        });
        begun.is_some()
    }

    /// Ends a permit that has [begun](Self::begin).
    fn end(&self, id: Id, since: f64, now: f64) {
        let mut times = self.times.lock();
        if let Some(place) = self.find(id) {
            let is_sampled = times[place].end(since, now);
            self.are_sampled[place].store(is_sampled, Relaxed);
        }
    }
}

impl Times {
    /// True if nothing is held, and all clients that were asked to return are due.
    fn is_idle(&self, now: f64) -> bool {
        self.held == 0 && self.until <= now
    }

    /// The last time at which a permit was granted or ended, or at which a client was due.
    fn last_use(&self) -> f64 {
        self.changed.max(self.until)
    }

    /// Returns `n` if one in `n` of the key's slots is for this flow. It shares the slots with the other flows whose
    /// clients will return.
    fn turns(&mut self, flow: u64, share: u32, now: f64) -> f64 {
        let flows = &mut self.flows;
        flows.retain(|other| other.flow != flow && other.until > now);
        let others: u32 = flows.iter().map(|other| other.share).sum();
        1.0 + f64::from(others) / f64::from(share)
    }

    /// Notes when a client of this flow was asked to return.
    fn note_return(&mut self, flow: u64, share: u32, until: f64) {
        self.until = self.until.max(until);
        if self.flows.len() < MAX_FLOWS {
            self.flows.push(FlowReturn { flow, share, until });
        }
    }

    /// Ends a permit. Returns true if permits are so frequent that only a sample needs timing.
    fn end(&mut self, since: f64, now: f64) -> bool {
        let hold = now - since;
        (self.held, self.changed) = (self.held - 1, now);
        self.seen = (self.seen + 1).min(MAX_SEEN);
        let mean = self.hold.unwrap_or_default();
        let mean = mean + (hold.min(MAX_HOLD) - mean) / f64::from(self.seen);
        self.hold = Some(mean);
        mean < SHORT_HOLD && hold < SHORT_HOLD
    }
}

/// Kept in a timed permit, which drops it when it ends.
struct HoldTimer {
    retry: Arc<Retry>,
    /// For each limit, the ids of its key and of its policy, if they have a place.
    timed: Few<[Option<Id>; 2]>,
    since: f64,
}

impl Drop for HoldTimer {
    fn drop(&mut self) {
        let now = self.retry.now();
        for id in self.timed.iter().flatten().flatten() {
            self.retry.set(*id).end(*id, self.since, now);
        }
    }
}

/// Chooses one of [`SAMPLE`] permits, spread so that layers that alternate on one thread all get a share: the steps are
/// 2³² divided by the golden ratio, so the turns spread evenly, and one in [`SAMPLE`] is low enough.
fn is_chosen() -> bool {
    thread_local! {
        static TURN: Cell<u32> = const { Cell::new(0) };
    }
    let turn = TURN.get().wrapping_add(0x9E37_79B9);
    TURN.set(turn);
    turn < u32::MAX / SAMPLE
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy::DEFAULT;

    /// Refuses `count` keys once each. Returns their `Retry-After` times.
    fn refuse(retry: &Retry, first: u64, count: u64) -> Vec<u64> {
        let keys = (first..first + count).map(|key| retry.key(&Claim::new(key)));
        let terms = RefusedTerms {
            limit: 1,
            weight: 1,
            share: 0,
        };
        keys.map(|key| retry.refused(&POLICY, key, terms)).collect()
    }

    fn places(retry: &Retry) -> usize {
        let sets = retry.sets.iter();
        sets.map(|set| set.times.lock().len()).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_beyond_the_table_get_the_first_slot_and_take_no_memory() {
        let retry = Retry::default();
        assert!(
            refuse(&retry, 0, 100_000)
                .iter()
                .all(|seconds| *seconds == 1)
        );
        assert_eq!(places(&retry), SETS * PLACES);
        // Keys without a place have no schedule.
        let again = refuse(&retry, 0, 100_000);
        let later = again.iter().filter(|seconds| **seconds > 1).count();
        assert_eq!(later, SETS * PLACES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_takes_the_place_of_one_whose_clients_are_back() {
        let retry = Retry::default();
        refuse(&retry, 0, 100_000);
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        refuse(&retry, 200_000, 100);
        let again = refuse(&retry, 200_000, 100);
        assert!(again.iter().all(|seconds| *seconds > 1), "each has a place");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_with_a_permit_keeps_its_place() {
        let (retry, now) = (Retry::default(), 0.0);
        let [key, _] = retry.ids(&POLICY, retry.key(&Claim::new("ann")));
        assert!(retry.set(key).begin(key, now));
        for round in 0..9 {
            refuse(&retry, round * 100_000, 100_000);
            tokio::time::advance(std::time::Duration::from_secs(2)).await;
        }
        // The permit was held for nine rounds of two seconds.
        retry.set(key).end(key, now, retry.now());
        let hold = retry.set(key).with(key, |times| times.hold);
        assert_eq!(hold.flatten().map(f64::round), Some(18.0));
    }
}
