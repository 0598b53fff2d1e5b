//! Pending releases: each is sent until it is answered.

use super::{core::Core, refresh::MAX_UNITS_TOGETHER, release::Pending, unreleased::Unreleased};
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

/// The same to each of several servers: the others have work meanwhile, and larger batches cost each
/// of them less (`benches/cluster`).
const MAX_IN_FLIGHT_TO_EACH: usize = 2;

/// The same where it is not known which server has a key. There a batch is of one semaphore, so that a
/// dead server delays no release on another. These are as many as a dead one may leave without an
/// answer.
const MAX_IN_FLIGHT_TO_UNKNOWN: usize = 4_096;

/// Releases of a batch: a claim that waits for a batch to be completed waits for at most so many. Heavy
/// ones are as few as one send carries.
const MAX_BATCH: usize = 1_024;

/// Releases that are sent together, and their number.
pub(super) type Batch = (u64, Vec<Pending>);

/// The releases to be sent now or later, and those in flight.
pub(super) struct Releases {
    core: Arc<Core>,
    lanes: BTreeMap<Way, Lane>,
    /// Releases that are not due yet.
    later: ByDue,
    unreleased: Unreleased,
    /// The highest number of a release or a batch.
    last: u64,
}

/// Releases by the time when they are due, and by number.
type ByDue = BTreeMap<(Instant, u64), Pending>;

/// What travels together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    kind: Kind,
    /// The number of the server, if it is known.
    server: Option<usize>,
}

/// Releases that travel apart from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Claims wait for them, so it does not matter how many the others are.
    Wanted,
    Fresh,
    /// They are sent again, and may fail again.
    Repeated,
}

/// Releases that wait to be sent one way, and batches in flight.
#[derive(Default)]
struct Lane {
    waiting: ByDue,
    /// The releases of each batch, by number.
    in_flight: BTreeMap<u64, Vec<(u64, Arc<Lease>)>>,
}

impl Releases {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            lanes: BTreeMap::new(),
            later: ByDue::new(),
            unreleased: Unreleased::default(),
            last: 0,
        }
    }

    pub(super) fn push(&mut self, mut pending: Pending) {
        self.last += 1;
        pending.number = self.last;
        let name = pending.lease.name();
        self.unreleased
            .insert(Arc::clone(&name), pending.number, pending.due);
        self.lane(Kind::Fresh, &name).push(pending);
    }

    /// The lane of a semaphore's releases.
    fn lane(&mut self, kind: Kind, name: &str) -> &mut Lane {
        let server = self.core.attempts.protocol.server_of(name);
        self.lanes.entry(Way { kind, server }).or_default()
    }

    /// Answers whether releases of a semaphore have no answer, once these are answered. Those that
    /// are not in flight are sent before all others.
    pub(super) fn settle(&mut self, name: &str, settled: oneshot::Sender<bool>) {
        for key in self.unreleased.settle(name, settled) {
            let others = self.lanes.iter_mut();
            let others = others.filter(|(way, _)| way.kind != Kind::Wanted);
            let due = others.filter_map(|(_, lane)| lane.waiting.remove(&key));
            let later = self.later.remove(&key).map(Pending::hurried);
            for pending in due.chain(later).collect::<Vec<_>>() {
                self.lane(Kind::Wanted, name).push(pending);
            }
        }
    }

    /// Whether all permits are released.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.values().all(Lane::is_empty) && self.later.is_empty()
    }

    /// The next batches. None while enough batches are in flight, so that releases that arrive under
    /// load are sent together.
    pub(super) fn take(&mut self) -> Vec<Batch> {
        let is_one_server = self.core.attempts.protocol.is_one_server();
        let mut batches = Vec::new();
        for (way, lane) in &mut self.lanes {
            let most = match way.server {
                Some(_) if is_one_server => MAX_IN_FLIGHT,
                Some(_) => MAX_IN_FLIGHT_TO_EACH,
                None => MAX_IN_FLIGHT_TO_UNKNOWN,
            };
            batches.extend(lane.take(most, way.server.is_some(), &mut self.last));
        }
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
        let mut lanes = self.lanes.values_mut();
        let batch = lanes.find_map(|lane| lane.in_flight.remove(&batch));
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
                self.unreleased
                    .insert(Arc::clone(&name), pending.number, pending.due);
                self.lane(Kind::Repeated, &name).push(pending);
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
        let waiting = self.lanes.values().flat_map(|lane| lane.waiting.values());
        let waiting = waiting.chain(self.later.values());
        let in_flight = self.lanes.values();
        let in_flight = in_flight.flat_map(|lane| lane.in_flight.values());
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
    fn take(&mut self, most: usize, is_known: bool, last: &mut u64) -> Vec<Batch> {
        let mut batches = Vec::new();
        while self.in_flight.len() < most && !self.waiting.is_empty() {
            for batch in cut(self.first(), is_known) {
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
fn cut(pending: Vec<Pending>, is_known: bool) -> Vec<Vec<Pending>> {
    if is_known {
        return vec![pending];
    }
    let groups = by_semaphore(pending, |pending| pending.lease.name());
    groups.into_iter().map(|(_, pending)| pending).collect()
}
