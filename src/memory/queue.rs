//! The waiters of one key, and its permits as operators see them.

use super::{
    budget::Due,
    fair::{FairPosition, FairTurn, Tags},
    holders::{Details, Listed},
};
use crate::{
    observe::contain,
    semaphore::{AcquireError, Policy, SemaphoreId, TakenUnits, Units, Wait, Window, timer},
};
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// The waiters of a key, ordered by arrival time minus head start, or by their turns once a claim with a flow has
/// joined.
///
/// A waiter that leaves is only marked. Marked waiters are removed together, at the latest once they are more than half
/// of the queue. So the cost of leaving does not grow with the queue.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<QueuedClaim>,
    /// The number of waiters in `waiting` that have left.
    departed: usize,
    /// The greatest limit of any claim that has joined since the queue was empty.
    max_limit: u32,
    /// Set if a claim with a flow has joined since the queue was empty, so that the queue is fair.
    tags: Option<Box<Tags>>,
    /// The permits that are held, each with the limit under which it was granted. Empty if the store does not list its
    /// permits.
    holders: Vec<(Arc<Details>, u32)>,
}

/// A claim in the queue, until it is removed.
pub(super) struct QueuedClaim {
    /// The arrival in [nanoseconds](timer::nanos) minus the head start; in a fair queue, the start tag.
    rank: i64,
    pub(super) details: Arc<Details>,
    /// `None` once the waiter has left.
    deliver: Option<Deliver>,
}

/// The rank of a waiter whose units were granted before, and given back because the key was paused.
const FIRST: i64 = i64::MIN;

/// Delivers the outcome of a waiter to its task. Must be called without the shard's lock: a waker may run the task at
/// once, and a grant to a waiter that is gone is released at once.
type Deliver = Box<dyn FnOnce(Decision) + Send>;

/// The outcome of a waiter.
pub(super) enum Decision {
    Granted(KeyGrant),
    Refused(KeyRefusal),
    /// It was first in the queue of a budget, and was not polled.
    Lapsed,
}

/// Granted units of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyGrant {
    /// The id of the entry.
    pub(super) id: u64,
    pub(super) token: u64,
    /// The units of the key that are in use, including these.
    pub(super) held: u32,
    /// The limit in force.
    pub(super) limit: u32,
}

/// A refusal of units of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyRefusal {
    /// The id of the entry.
    pub(super) id: u64,
    /// The units of the key that are in use.
    pub(super) held: u32,
    /// The limit in force.
    pub(super) limit: u32,
    /// The rest of a pause.
    pub(super) pause: Option<Duration>,
    /// The window of a budget.
    pub(super) window: Option<Window>,
    /// When the units of a budget fit. Unknown if the limit is no budget, or if other claims wait before the refused
    /// one.
    pub(super) due: Due,
    /// The number of claims that wait before the refused one.
    pub(super) ahead: usize,
}

impl KeyRefusal {
    /// True if the key is paused for longer than this.
    pub(super) fn outlasts(self, wait: Duration) -> bool {
        self.pause.is_some_and(|left| left > wait)
    }

    #[cold]
    pub(super) fn error(self, policy: &Policy) -> AcquireError {
        let (limit, id) = (self.limit, SemaphoreId::numbered(self.id));
        let (policy, window) = (policy.clone(), self.window.map(Window::time));
        let semaphore = Some(id);
        let now = Instant::now();
        match (self.pause, limit) {
            (Some(retry_after), _) => AcquireError::Paused {
                policy,
                limit,
                window,
                retry_after,
                semaphore,
            },
            // An operator has set this limit: a claim whose own limit is 0 is refused earlier.
            (None, 0) => AcquireError::KeyClosed { policy },
            (None, _) => AcquireError::Full {
                policy,
                limit,
                held: self.held,
                window,
                retry_after: match self.due {
                    Due::At(at) => Some(at.saturating_duration_since(now)),
                    Due::Now | Due::Unknown => None,
                },
                semaphore,
            },
        }
    }
}

/// The place at which a claim joins a fair queue.
struct Start {
    tag: i64,
    /// The tag of the first waiter; `i64::MIN` in an empty queue.
    head: i64,
    /// The tag of the last waiter, or the time just before the arrival if that is later.
    last: i64,
    /// True if the claim skipped the tag of a waiter that has left.
    meets_gap: bool,
}

/// A notice for a waiter, to be delivered without the shard's lock.
pub(super) enum WaiterNotice {
    /// Its outcome after it has left the queue, and the callback that delivers it.
    Outcome(Decision, Deliver),
    /// It should look again: its key is paused, or the time at which its units fit has changed.
    Look(Arc<Details>),
}

/// Delivers notices to waiters. The list is usually empty, and only that case is inlined.
#[inline]
pub(super) fn deliver(notices: Vec<WaiterNotice>) {
    if !notices.is_empty() {
        deliver_all(notices);
    }
}

#[cold]
fn deliver_all(notices: Vec<WaiterNotice>) {
    for notice in notices {
        // A waker is user code. If it panics, the drop must still complete, and the other tasks must still be woken.
        contain(|| match notice {
            WaiterNotice::Outcome(decision, deliver) => deliver(decision),
            WaiterNotice::Look(waiter) => waiter.changed.notify_one(),
        });
    }
}

impl QueuedClaim {
    pub(super) fn new(
        wait: Wait,
        details: Arc<Details>,
        deliver: impl FnOnce(Decision) + Send + 'static,
    ) -> Self {
        Self {
            rank: timer::nanos() - wait.head_start.as_nanos() as i64,
            details,
            deliver: Some(Box::new(deliver)),
        }
    }

    pub(super) fn units(&self) -> Units {
        self.details.units
    }

    /// Ranks the waiter before all others that have not been granted yet.
    pub(super) fn before_all(mut self) -> Self {
        self.rank = FIRST;
        self
    }

    fn has_left(&self) -> bool {
        self.deliver.is_none()
    }

    fn position(&self) -> FairPosition<'_> {
        FairPosition {
            turn: &self.details.turn,
            start: self.rank,
            // A waiter before all others took no turn, so its departure leaves no gap.
            has_left: self.has_left() && self.rank != FIRST,
        }
    }

    /// Moves the waiter. `leave` finds it by the rank in its details.
    fn set_rank(&mut self, rank: i64) {
        self.rank = rank;
        self.details.rank.store(rank, Relaxed);
    }
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.len() == self.departed
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() - self.departed
    }

    /// With this number of held units no waiter fits, unless an operator has set the limit.
    pub(super) fn max_limit(&self) -> u32 {
        self.max_limit
    }

    /// Adds a waiter to the queue: in order of arrival minus head start, or in a fair queue in its turn. Returns false
    /// if `max_waiting` or more waiters are ahead of it.
    pub(super) fn push(&mut self, waiting: QueuedClaim, max_waiting: u32) -> bool {
        let limit = waiting.units().limit;
        let is_fair = self.tags.is_some() || waiting.details.turn.flow().is_some();
        let has_joined = if waiting.rank == FIRST {
            self.insert(waiting, u32::MAX)
        } else if is_fair {
            self.push_fairly(waiting, max_waiting)
        } else {
            if self.index_of(waiting.rank) >= max_waiting as usize {
                self.remove_departed();
            }
            self.insert(waiting, max_waiting)
        };
        if has_joined {
            self.max_limit = self.max_limit.max(limit);
        }
        has_joined
    }

    fn push_fairly(&mut self, mut waiting: QueuedClaim, max_waiting: u32) -> bool {
        let details = Arc::clone(&waiting.details);
        let turn = &details.turn;
        if self.tags.as_ref().is_none_or(|tags| tags.has_gap(turn)) {
            self.remove_departed();
        }
        let arrival = waiting.rank;
        let mut start = self.start_of(turn, arrival);
        // Until they are removed, waiters that have left count as ahead, and their tags as taken.
        if self.departed > 0
            && (start.meets_gap || self.index_of(start.tag) >= max_waiting as usize)
        {
            self.remove_departed();
            start = self.start_of(turn, arrival);
        }
        waiting.rank = start.tag;
        let has_joined = self.insert(waiting, max_waiting);
        if has_joined {
            let tags = self
                .tags
                .get_or_insert_with(|| Box::new(Tags::after(start.last)));
            tags.joined(turn, start.head, start.tag);
        }
        has_joined
    }

    /// Returns where a claim that arrives at this time joins the fair queue.
    fn start_of(&mut self, turn: &FairTurn, arrival: i64) -> Start {
        // One before the arrival, so that the first claim of an empty queue starts at its arrival.
        let now = arrival - 1;
        let head = self.first().map_or(i64::MIN, |head| head.rank);
        let last = self.waiting.back().map_or(now, |last| last.rank.max(now));
        let earliest = match &self.tags {
            Some(tags) => tags.start(turn, head),
            None => Tags::after(last).start(turn, head),
        };
        let tag = self.free_tag(earliest);
        let first_skipped = self.waiting.partition_point(|other| other.rank < earliest);
        let mut skipped = self.waiting.range(first_skipped..self.index_of(tag));
        Start {
            tag,
            head,
            last,
            meets_gap: skipped.any(QueuedClaim::has_left),
        }
    }

    /// Returns the first tag, from this one on, that no waiter has. Two waiters with the same tag would be in an
    /// arbitrary order. Tags are distinct, so a binary search finds the end of the run of taken tags.
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

    /// Counts the waiters up to and including this rank, also those that have left.
    fn index_of(&self, rank: i64) -> usize {
        self.waiting.partition_point(|other| other.rank <= rank)
    }

    /// Inserts a waiter at its rank, unless `max_waiting` others are before it.
    fn insert(&mut self, mut waiting: QueuedClaim, max_waiting: u32) -> bool {
        let index = self.index_of(waiting.rank);
        let has_room = index < max_waiting as usize;
        if has_room {
            waiting.set_rank(waiting.rank);
            self.waiting.insert(index, waiting);
        }
        has_room
    }

    /// Returns the first waiter that has not left.
    fn first(&mut self) -> Option<&QueuedClaim> {
        if self.waiting.front().is_some_and(QueuedClaim::has_left) {
            match self.tags {
                // A later waiter of the same flow moves up, and may now be first.
                Some(_) => self.remove_departed(),
                None => self.drop_first(),
            }
        }
        self.waiting.front()
    }

    /// Removes waiters that have left from the front.
    fn drop_first(&mut self) {
        while self.waiting.front().is_some_and(QueuedClaim::has_left) {
            self.waiting.pop_front();
            self.departed -= 1;
        }
    }

    /// The head's claim.
    pub(super) fn head(&mut self) -> Option<&Arc<Details>> {
        self.first().map(|head| &head.details)
    }

    /// Removes the head. Returns its details and the callback that delivers its outcome.
    pub(super) fn pop(&mut self) -> Option<(Arc<Details>, Deliver)> {
        self.first()?;
        let head = self.waiting.pop_front()?;
        self.reset_if_empty();
        Some((head.details, head.deliver?))
    }

    /// Counts the waiters before this claim, by its last rank in the queue: at least one, unless it is the head.
    pub(super) fn count_before(&mut self, claim: &Arc<Details>) -> usize {
        let Some(head) = self.head() else { return 0 };
        if Arc::ptr_eq(head, claim) {
            return 0;
        }
        let rank = claim.rank.load(Relaxed);
        let before = self.waiting.partition_point(|other| other.rank < rank);
        before.clamp(1, self.len())
    }

    /// Removes the head if it is this claim, because its units are granted.
    pub(super) fn pop_if(&mut self, claim: &Arc<Details>) -> Option<Deliver> {
        let is_head = self.head().is_some_and(|head| Arc::ptr_eq(head, claim));
        is_head
            .then(|| self.pop())
            .flatten()
            .map(|(_, deliver)| deliver)
    }

    /// Refuses the waiters that are heavier than a limit.
    pub(super) fn refuse_heavy(&mut self, refusal: KeyRefusal) -> Vec<WaiterNotice> {
        let is_heavy = |at: &usize| self.waiting[*at].units().weight > refusal.limit;
        let heavy: Vec<_> = (0..self.waiting.len()).filter(is_heavy).collect();
        let refused = heavy.into_iter().filter_map(|at| self.mark(at));
        let refused =
            refused.map(|deliver| WaiterNotice::Outcome(Decision::Refused(refusal), deliver));
        let refused = refused.collect();
        self.remove_departed();
        refused
    }

    /// Removes a waiter, if it is still in the queue. Drop the result outside of the lock: it may wake a task.
    pub(super) fn leave(&mut self, details: &Arc<Details>) -> Option<Deliver> {
        let rank = details.rank.load(Relaxed);
        let first = self.waiting.partition_point(|other| other.rank < rank);
        let same = self.waiting.range(first..);
        let mut same = same.take_while(|other| other.rank == rank);
        // A claim of a budget may have left and joined again.
        let is_it = |other: &QueuedClaim| Arc::ptr_eq(&other.details, details) && !other.has_left();
        let at = same.position(is_it)?;
        self.remove_at(first + at)
    }

    /// Removes the waiter with this serial, if it is in the queue. Takes time linear in the length of the queue.
    pub(super) fn remove_waiter(&mut self, serial: u64) -> Option<Deliver> {
        let is_it = |waiting: &QueuedClaim| waiting.details.serial == serial && !waiting.has_left();
        let at = self.waiting.iter().position(is_it)?;
        self.remove_at(at)
    }

    fn remove_at(&mut self, at: usize) -> Option<Deliver> {
        let deliver = self.mark(at)?;
        if self.departed * 2 > self.waiting.len() {
            self.remove_departed();
        }
        Some(deliver)
    }

    /// Marks a waiter as gone.
    fn mark(&mut self, at: usize) -> Option<Deliver> {
        let waiting = &mut self.waiting[at];
        let deliver = waiting.deliver.take()?;
        self.departed += 1;
        if let Some(tags) = &mut self.tags
            && waiting.rank != FIRST
        {
            tags.note_gap(&waiting.details.turn);
        }
        Some(deliver)
    }

    /// Removes all waiters that have left. The later waiters of their flows move up.
    #[cold]
    fn remove_departed(&mut self) {
        if self.departed == 0 {
            return;
        }
        if let Some(tags) = &mut self.tags {
            let starts = tags.close_gaps(self.waiting.iter().map(QueuedClaim::position));
            let moved = self.waiting.iter_mut().zip(starts);
            let moved = moved.filter(|(waiting, start)| waiting.rank != *start);
            moved.for_each(|(waiting, start)| waiting.set_rank(start));
        }
        self.waiting.retain(|waiting| !waiting.has_left());
        self.departed = 0;
        if self.tags.is_some() {
            let waiting = self.waiting.make_contiguous();
            waiting.sort_by_key(|waiting| waiting.rank);
        }
        self.reset_if_empty();
    }

    /// Frees the memory and the tags of an empty queue.
    fn reset_if_empty(&mut self) {
        if self.is_empty() {
            (self.waiting, self.departed) = (VecDeque::new(), 0);
            (self.tags, self.max_limit) = (None, 0);
        }
    }

    /// Returns a notice for each waiter: it should look again.
    pub(super) fn look_at_all(&self) -> Vec<WaiterNotice> {
        let waiting = self.waiting.iter().filter(|waiting| !waiting.has_left());
        waiting
            .map(|waiting| WaiterNotice::Look(Arc::clone(&waiting.details)))
            .collect()
    }

    /// Lists a permit under the limit in force.
    pub(super) fn list_permit(&mut self, details: Arc<Details>, limit: u32) {
        self.holders.push((details, limit));
    }

    /// Removes a permit from the list. Returns its details, and the units that it held.
    pub(super) fn unlist_permit(&mut self, serial: u64) -> Option<(Arc<Details>, TakenUnits)> {
        let is_it = |(details, _): &(Arc<Details>, _)| details.serial == serial;
        let at = self.holders.iter().position(is_it)?;
        let (details, _) = self.holders.swap_remove(at);
        let taken = details.held.take();
        Some((details, taken))
    }

    /// Returns the permits in the order of their claims, and the waiters in the order of the queue. Waiters are shown
    /// under the limit that an operator has set, or else under that of their claims.
    pub(super) fn listed(&mut self, operator_limit: Option<u32>) -> (Vec<Listed>, Vec<Listed>) {
        self.remove_departed();
        let with_limit = |details: &Arc<Details>, limit| {
            let (weight, budget) = (details.held.weight(), details.units.budget);
            let units = Units {
                limit,
                weight,
                budget,
            };
            (Arc::clone(details), units)
        };
        let held = self.holders.iter();
        let held = held.map(|(details, limit)| with_limit(details, *limit));
        let mut held: Vec<_> = held.collect();
        held.sort_unstable_by_key(|(details, _)| details.serial);
        let waiting = self.waiting.iter().map(|waiting| {
            let limit = operator_limit.unwrap_or(waiting.units().limit);
            with_limit(&waiting.details, limit)
        });
        (held, waiting.collect())
    }
}
