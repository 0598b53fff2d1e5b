//! The waiters of one key, and its permits as operators see them.

use super::{
    fair::{Tags, Turn},
    holders::{Details, Listed},
};
use crate::semaphore::{Claim, Units, Wait, timer};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// The waiters of a key, ordered by arrival time minus head start, or by their turns once a claim with a flow has come.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// If claims with flows have come since it was empty.
    tags: Option<Box<Tags>>,
    /// Empty if the store does not list its permits.
    holders: Vec<Arc<Details>>,
}

/// A waiter. Its drop wakes its task, so drop it outside the queue's lock.
#[must_use]
pub(super) struct Waiting {
    /// When it arrived, in [nanoseconds](timer::nanos), less its head start; in a fair queue its start tag.
    rank: i64,
    turn: Turn,
    units: Units,
    details: Arc<Details>,
    deliver: Deliver,
}

/// Takes what has become of a waiter to its task: without the queue's lock, because a waker may run the task at once,
/// and because what a waiter that is gone is granted is released.
type Deliver = Box<dyn FnOnce(Result<Acquired, Full>) + Send>;

/// A granted claim: its token, the units of the key now held, and the limit in force.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acquired {
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

/// What has become of a waiter that has left the queue.
pub(super) struct Decided(Result<Acquired, Full>, Deliver);

impl Decided {
    pub(super) fn deliver(self) {
        waking(|| (self.1)(self.0));
    }
}

/// Does what may wake a task. A waker is user code: one that panics ends no drop, and keeps no other task waiting. The
/// panic hook has reported it.
pub(super) fn waking(wake: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(wake));
}

impl Waiting {
    pub(super) fn new(
        claim: &Claim,
        wait: Wait,
        details: Arc<Details>,
        deliver: impl FnOnce(Result<Acquired, Full>) + Send + 'static,
    ) -> Self {
        Self {
            rank: timer::nanos() - wait.head_start.as_nanos() as i64,
            turn: Turn::new(claim),
            units: claim.checked_units(),
            details,
            deliver: Box::new(deliver),
        }
    }

    /// The units of its claim.
    pub(super) fn units(&self) -> Units {
        self.units
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Joins the queue behind all waiters that arrived before, or that had that much of a head start; or in its turn.
    /// Gives the waiter back if `max_waiting` or more are ahead of it.
    pub(super) fn push(&mut self, waiting: Waiting, max_waiting: u32) -> Result<(), Waiting> {
        match self.tags.is_some() || waiting.turn.has_flow() {
            true => self.push_fairly(waiting, max_waiting),
            false => self.insert(waiting, max_waiting),
        }
    }

    fn push_fairly(&mut self, mut waiting: Waiting, max_waiting: u32) -> Result<(), Waiting> {
        let now = waiting.rank - 1;
        let last = self.waiting.back().map_or(now, |last| last.rank.max(now));
        let head = self.waiting.front().map_or(i64::MIN, |head| head.rank);
        let new = || Box::new(Tags::after(last));
        let tags = self.tags.take();
        let (was_fair, mut tags) = (tags.is_some(), tags.unwrap_or_else(new));
        let start = self.free_tag(tags.start(&waiting.turn, head));
        let turn = waiting.turn.clone();
        waiting.rank = start;
        let joined = self.insert(waiting, max_waiting);
        if joined.is_ok() {
            tags.joined(&turn, head, start);
        }
        self.tags = Some(tags).filter(|_| was_fair || joined.is_ok());
        joined
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

    fn insert(&mut self, waiting: Waiting, max_waiting: u32) -> Result<(), Waiting> {
        let is_ahead = |other: &Waiting| other.rank <= waiting.rank;
        let index = self.waiting.partition_point(is_ahead);
        if index >= max_waiting as usize {
            return Err(waiting);
        }
        self.waiting.insert(index, waiting);
        Ok(())
    }

    /// The units of the head's claim.
    pub(super) fn head(&self) -> Option<Units> {
        self.waiting.front().map(|waiting| waiting.units)
    }

    /// Grants to the head, which leaves the queue.
    pub(super) fn grant_head(&mut self, acquired: Acquired) -> Option<Decided> {
        let head = self.waiting.pop_front()?;
        self.begin_anew();
        if head.details.is_listed {
            self.list(head.details, acquired.limit);
        }
        Some(Decided(Ok(acquired), head.deliver))
    }

    /// Refuses the waiters that are heavier than a limit. From the back, so that none that leaves moves up before.
    pub(super) fn refuse_heavy(&mut self, full: Full) -> Vec<Decided> {
        let mut refused = Vec::new();
        for index in (0..self.waiting.len()).rev() {
            if self.waiting[index].units.weight > full.limit
                && let Some(left) = self.remove_at(index)
            {
                refused.push(Decided(Err(full), left.deliver));
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
        let is_of = |other: &Waiting| other.turn.is_of(&removed.turn);
        // Of its own flow none but these may have the tags to which they move.
        let is_taken = |tag| {
            let found = waiting.binary_search_by_key(&tag, |other| other.rank);
            found.is_ok_and(|at| !is_of(&waiting[at]))
        };
        let later = waiting.range(index..).filter(|other| is_of(other));
        let later = later.map(|other| (&other.turn, other.rank));
        let moved = tags.left((&removed.turn, removed.rank), later, is_taken);
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

    /// Lists a permit, which has the weight of its claim, under the limit in force.
    pub(super) fn list(&mut self, details: Arc<Details>, limit: u32) {
        details.hold(limit);
        self.holders.push(details);
    }

    /// Lists a permit no more.
    pub(super) fn unlist(&mut self, serial: u64) -> Option<Arc<Details>> {
        let is_it = |details: &Arc<Details>| details.serial == serial;
        let at = self.holders.iter().position(is_it)?;
        Some(self.holders.swap_remove(at))
    }

    /// The permits with their weights, and the waiters in their order.
    pub(super) fn details(&self) -> (Vec<Listed>, Vec<Arc<Details>>) {
        let held = self.holders.iter();
        let held = held.map(|details| (Arc::clone(details), details.weight()));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|waiting| Arc::clone(&waiting.details));
        (held.collect(), waiting.collect())
    }
}
