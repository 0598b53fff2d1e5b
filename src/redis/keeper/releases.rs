//! Pending releases: each is sent until it is answered.

use super::{refresh::MAX_UNITS_TOGETHER, release::Pending, unreleased::Unreleased};
use crate::redis::{group::by_semaphore, lease::Lease};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Instant,
};
use tokio::sync::oneshot;

/// Batches in flight at a time to one server. More than one, so that the first release after a
/// quiet moment does not wait for the answer to another.
const MAX_IN_FLIGHT: usize = 4;

/// The same where keys live on several nodes. There a batch is of one semaphore, so that a dead node
/// delays no release on another. These are as many as a dead node may leave without an answer.
const MAX_IN_FLIGHT_TO_NODES: usize = 4_096;

/// Releases of a batch: a claim that waits for a batch to be completed waits for at most so many. Heavy
/// ones are as few as one send carries.
const MAX_BATCH: usize = 1_024;

/// Releases that are sent together, and their number.
pub(super) type Batch = (u64, Vec<Pending>);

/// The releases to be sent now or later, and those in flight.
pub(super) struct Releases {
    is_one_server: bool,
    /// Releases that claims wait for: apart from the others, however many these are.
    wanted: Lane,
    fresh: Lane,
    /// Releases that are sent again: apart from the others, because they may fail again.
    repeated: Lane,
    /// Releases that are not due yet.
    later: ByDue,
    unreleased: Unreleased,
    /// The highest number of a release or a batch.
    last: u64,
}

/// Releases by the time when they are due, and by number.
type ByDue = BTreeMap<(Instant, u64), Pending>;

/// Releases that wait to be sent, and batches in flight.
#[derive(Default)]
struct Lane {
    waiting: ByDue,
    /// The releases of each batch, by number.
    in_flight: BTreeMap<u64, Vec<(u64, Arc<Lease>)>>,
}

impl Releases {
    pub(super) fn new(is_one_server: bool) -> Self {
        Self {
            is_one_server,
            wanted: Lane::default(),
            fresh: Lane::default(),
            repeated: Lane::default(),
            later: ByDue::new(),
            unreleased: Unreleased::default(),
            last: 0,
        }
    }

    pub(super) fn push(&mut self, mut pending: Pending) {
        self.last += 1;
        pending.number = self.last;
        let name = pending.lease.name();
        self.unreleased.insert(name, pending.number, pending.due);
        self.fresh.push(pending);
    }

    /// Answers whether releases of a semaphore have no answer, once these are answered. Those that
    /// are not in flight are sent before all others.
    pub(super) fn settle(&mut self, name: &str, settled: oneshot::Sender<bool>) {
        for key in self.unreleased.settle(name, settled) {
            let lanes = [&mut self.fresh, &mut self.repeated].into_iter();
            let due = lanes.filter_map(|lane| lane.waiting.remove(&key));
            let later = self.later.remove(&key).map(Pending::hurried);
            due.chain(later)
                .for_each(|pending| self.wanted.push(pending));
        }
    }

    /// Whether all permits are released.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes().all(Lane::is_empty) && self.later.is_empty()
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> + Clone {
        [&self.wanted, &self.fresh, &self.repeated].into_iter()
    }

    fn lanes_mut(&mut self) -> [&mut Lane; 3] {
        [&mut self.wanted, &mut self.fresh, &mut self.repeated]
    }

    /// The next batches. None while enough batches are in flight, so that releases that arrive under
    /// load are sent together.
    pub(super) fn take(&mut self) -> Vec<Batch> {
        let (is_one_server, mut last) = (self.is_one_server, self.last);
        let mut batches = Vec::new();
        for lane in self.lanes_mut() {
            batches.extend(lane.take(is_one_server, &mut last));
        }
        self.last = last;
        batches
    }

    /// A batch is completed; `again` has to be sent again.
    pub(super) fn completed(&mut self, batch: u64, again: Vec<Pending>) {
        let mut unreleased = HashSet::new();
        for pending in again {
            let (name, number, due) = (pending.lease.name(), pending.number, pending.due);
            if pending.has_failed() {
                unreleased.insert(number);
                self.unreleased.insert(name, number, due);
            } else if pending.may_hurry() {
                unreleased.insert(number);
                self.unreleased.answered(&name, number, due);
            }
            self.later.insert((due, number), pending);
        }
        let lanes = self.lanes_mut();
        let batch = lanes
            .into_iter()
            .find_map(|lane| lane.in_flight.remove(&batch));
        for (number, lease) in batch.into_iter().flatten() {
            if !unreleased.contains(&number) {
                self.unreleased.remove(&lease.name(), number);
            }
        }
    }

    /// Queues releases that are due again. A lease that has ended by now needs no release any more.
    pub(super) fn retry(&mut self, now: Instant) {
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= now
        {
            let mut pending = first.remove();
            let name = pending.lease.name();
            if now < pending.gives_up {
                self.unreleased.insert(name, pending.number, pending.due);
                self.repeated.push(pending);
            } else {
                self.unreleased.remove(&name, pending.number);
                pending.answer(false);
            }
        }
    }

    /// When the next release is due again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.later.keys().next().map(|(due, _)| *due)
    }

    /// The leases that are not released yet.
    pub(super) fn rest(&self) -> Vec<Arc<Lease>> {
        let lanes = self.lanes();
        let waiting = lanes.clone().flat_map(|lane| lane.waiting.values());
        let waiting = waiting.chain(self.later.values());
        let in_flight = lanes.flat_map(|lane| lane.in_flight.values());
        let in_flight = in_flight.flatten().map(|(_, lease)| lease);
        let waiting = waiting.map(|pending| &pending.lease);
        waiting.chain(in_flight).cloned().collect()
    }
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    fn push(&mut self, pending: Pending) {
        self.waiting.insert((pending.due, pending.number), pending);
    }

    /// The next batches, which get the numbers after `last`.
    fn take(&mut self, is_one_server: bool, last: &mut u64) -> Vec<Batch> {
        let most = match is_one_server {
            true => MAX_IN_FLIGHT,
            false => MAX_IN_FLIGHT_TO_NODES,
        };
        let mut batches = Vec::new();
        while self.in_flight.len() < most && !self.waiting.is_empty() {
            for batch in cut(self.first(), is_one_server) {
                *last += 1;
                let leases = batch.iter();
                let leases = leases.map(|pending| (pending.number, Arc::clone(&pending.lease)));
                self.in_flight.insert(*last, leases.collect());
                batches.push((*last, batch));
            }
        }
        batches
    }

    /// Takes out the releases of the next batch.
    fn first(&mut self) -> Vec<Pending> {
        let (mut batch, mut units) = (Vec::new(), 0);
        while batch.len() < MAX_BATCH
            && units < MAX_UNITS_TOGETHER
            && let Some((_, pending)) = self.waiting.pop_first()
        {
            units += pending.lease.permit().units() as usize;
            batch.push(pending);
        }
        batch
    }
}

/// Cuts releases into batches.
fn cut(pending: Vec<Pending>, is_one_server: bool) -> Vec<Vec<Pending>> {
    if is_one_server {
        return vec![pending];
    }
    let groups = by_semaphore(pending, |pending| pending.lease.name());
    groups.into_iter().map(|(_, pending)| pending).collect()
}
