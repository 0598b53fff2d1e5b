//! The waiters of one key, and its permits as operators see them.

use super::{
    fair::Tags,
    holders::{Details, Listed},
};
use crate::{
    observe::contain,
    semaphore::{AcquireError, Claim, Policy, Units, Wait, timer},
    sync::AtomicU32,
};
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// The waiters of a key, ordered by arrival time minus head start, or by their turns once a claim with a flow has come.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// If claims with flows have come since it was empty.
    tags: Option<Box<Tags>>,
    /// What is held, and the limit under which it was granted. Empty if the store does not list its permits.
    holders: Vec<(Arc<Details>, u32)>,
}

/// A waiter. Its drop wakes its task, so drop it outside the queue's lock.
#[must_use]
pub(super) struct Waiting {
    /// When it arrived, in [nanoseconds](timer::nanos), less its head start; in a fair queue its start tag.
    rank: i64,
    pub(super) details: Arc<Details>,
    deliver: Deliver,
}

/// Takes what has become of a waiter to its task: without the queue's lock, because a waker may run the task at once,
/// and because what a waiter that is gone is granted is released.
type Deliver = Box<dyn FnOnce(Result<Acquired, Full>) + Send>;

/// A granted claim: its entry's id, its token, the units of the key now held, and the limit in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acquired {
    pub(super) id: u64,
    pub(super) token: u64,
    pub(super) held: u32,
    pub(super) limit: u32,
}

/// No room: the units of the key that are held, and the limit in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct Full {
    pub(super) held: u32,
    pub(super) limit: u32,
}

impl Full {
    #[cold]
    pub(super) fn error(self, policy: &Policy) -> AcquireError {
        AcquireError::under(policy, self.limit, self.held)
    }
}

/// What has become of a waiter that has left the queue.
pub(super) struct Decided(Result<Acquired, Full>, Deliver);

/// Tells waiters what has become of them: mostly there are none.
#[inline]
pub(super) fn deliver(decided: Vec<Decided>) {
    if !decided.is_empty() {
        deliver_all(decided);
    }
}

#[cold]
fn deliver_all(decided: Vec<Decided>) {
    for Decided(answer, deliver) in decided {
        // A waker is user code: one that panics ends no drop, and keeps no other task waiting.
        contain(|| deliver(answer));
    }
}

/// The units of a permit, which has none from now on. No swap, because the shard's lock is held.
#[inline]
pub(super) fn take(weight: &AtomicU32) -> u32 {
    let units = weight.load(Relaxed);
    weight.store(0, Relaxed);
    units
}

impl Waiting {
    pub(super) fn new(
        wait: Wait,
        details: Arc<Details>,
        deliver: impl FnOnce(Result<Acquired, Full>) + Send + 'static,
    ) -> Self {
        Self {
            rank: timer::nanos() - wait.head_start.as_nanos() as i64,
            details,
            deliver: Box::new(deliver),
        }
    }

    /// The units of its claim.
    pub(super) fn units(&self) -> Units {
        self.details.claim.checked_units()
    }

    pub(super) fn decided(self, answer: Result<Acquired, Full>) -> Decided {
        Decided(answer, self.deliver)
    }

    fn claim(&self) -> &Claim {
        &self.details.claim
    }
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Joins the queue behind all waiters that arrived before, or that had that much of a head start; or in its turn.
    /// `false`: `max_waiting` or more are ahead of it.
    pub(super) fn push(&mut self, waiting: Waiting, max_waiting: u32) -> bool {
        match self.tags.is_some() || waiting.claim().flow().is_some() {
            true => self.push_fairly(waiting, max_waiting),
            false => self.insert(waiting, max_waiting),
        }
    }

    fn push_fairly(&mut self, mut waiting: Waiting, max_waiting: u32) -> bool {
        let now = waiting.rank - 1;
        let last = self.waiting.back().map_or(now, |last| last.rank.max(now));
        let head = self.waiting.front().map_or(i64::MIN, |head| head.rank);
        let new = || Box::new(Tags::after(last));
        let tags = self.tags.take();
        let (was_fair, mut tags) = (tags.is_some(), tags.unwrap_or_else(new));
        let start = self.free_tag(tags.start(waiting.claim(), head));
        let details = Arc::clone(&waiting.details);
        waiting.rank = start;
        let has_joined = self.insert(waiting, max_waiting);
        if has_joined {
            tags.joined(&details.claim, head, start);
        }
        self.tags = Some(tags).filter(|_| was_fair || has_joined);
        has_joined
    }

    /// The first tag from here on that no waiter has: of two with one tag the order would be theirs by chance. Tags
    /// are distinct, so the run of those that are taken is found by halves.
    fn free_tag(&self, first: i64) -> i64 {
        let before = self.waiting.partition_point(|other| other.rank < first);
        let (mut run, mut end) = (0, self.waiting.len() - before);
        while run < end {
            let middle = (run + end) / 2;
            match self.waiting[before + middle].rank == first + middle as i64 {
                true => run = middle + 1,
                false => end = middle,
            }
        }
        first + run as i64
    }

    fn insert(&mut self, waiting: Waiting, max_waiting: u32) -> bool {
        let is_ahead = |other: &Waiting| other.rank <= waiting.rank;
        let index = self.waiting.partition_point(is_ahead);
        let has_room = index < max_waiting as usize;
        if has_room {
            self.waiting.insert(index, waiting);
        }
        has_room
    }

    /// The units of the head's claim.
    pub(super) fn head(&self) -> Option<Units> {
        self.waiting.front().map(Waiting::units)
    }

    /// The head leaves the queue.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let head = self.waiting.pop_front();
        self.begin_anew();
        head
    }

    /// Refuses the waiters that are heavier than a limit. From the back, so that none that leaves moves up before.
    pub(super) fn refuse_heavy(&mut self, full: Full) -> Vec<Decided> {
        let mut refused = Vec::new();
        for index in (0..self.waiting.len()).rev() {
            if self.waiting[index].units().weight > full.limit
                && let Some(left) = self.remove_at(index)
            {
                refused.push(left.decided(Err(full)));
            }
        }
        refused.reverse();
        refused
    }

    /// Removes a waiter, if it is still in the queue.
    pub(super) fn remove(&mut self, serial: u64) -> Option<Waiting> {
        let is_it = |waiting: &Waiting| waiting.details.serial == serial;
        let index = self.waiting.iter().position(is_it)?;
        self.remove_at(index)
    }

    fn remove_at(&mut self, index: usize) -> Option<Waiting> {
        let removed = self.waiting.remove(index)?;
        self.move_up(&removed, index);
        self.begin_anew();
        Some(removed)
    }

    /// The later waiters of the flow of one that has left, those from an index on, have its turn, each that of the one
    /// before it.
    fn move_up(&mut self, removed: &Waiting, index: usize) {
        let Some(tags) = &mut self.tags else {
            return;
        };
        let waiting = &self.waiting;
        let is_of = |other: &Waiting| other.claim().flow() == removed.claim().flow();
        // Of its own flow none but these may have the tags to which they move.
        let is_taken = |tag| {
            let found = waiting.binary_search_by_key(&tag, |other| other.rank);
            found.is_ok_and(|at| !is_of(&waiting[at]))
        };
        let later = waiting.range(index..).filter(|other| is_of(other));
        let later = later.map(|other| (other.claim(), other.rank));
        let moved = tags.left((removed.claim(), removed.rank), later, is_taken);
        if moved.is_empty() {
            return;
        }
        let later = self.waiting.range_mut(index..).filter(|other| is_of(other));
        for (other, rank) in later.zip(moved) {
            other.rank = rank;
        }
        self.waiting
            .make_contiguous()
            .sort_by_key(|other| other.rank);
    }

    /// Tags begin anew with an empty queue.
    fn begin_anew(&mut self) {
        if self.waiting.is_empty() {
            self.tags = None;
        }
    }

    /// Lists a permit under the limit in force.
    pub(super) fn list(&mut self, details: Arc<Details>, limit: u32) {
        self.holders.push((details, limit));
    }

    /// Lists a permit no more. Returns how many units it held until now.
    pub(super) fn unlist(&mut self, serial: u64) -> Option<(Arc<Details>, u32)> {
        let is_it = |(details, _): &(Arc<Details>, _)| details.serial == serial;
        let at = self.holders.iter().position(is_it)?;
        let (details, _) = self.holders.swap_remove(at);
        let weight = take(&details.weight);
        Some((details, weight))
    }

    /// The permits in the order of their claims, and the waiters in theirs, under the limit that an operator has set if
    /// there is one.
    pub(super) fn listed(&self, set: Option<u32>) -> (Vec<Listed>, Vec<Listed>) {
        let of = |details: &Arc<Details>, limit| {
            let weight = details.weight.load(Relaxed);
            (Arc::clone(details), Units { limit, weight })
        };
        let held = self.holders.iter();
        let mut held: Vec<_> = held.map(|(details, limit)| of(details, *limit)).collect();
        held.sort_unstable_by_key(|(details, _)| details.serial);
        let waiting = self.waiting.iter();
        let waiting =
            waiting.map(|waiting| of(&waiting.details, set.unwrap_or(waiting.units().limit)));
        (held, waiting.collect())
    }
}
