//! Pending releases: each is sent until it is answered.

use super::{
    core::Core,
    refresh::{groups, together},
};
use crate::redis::lease::Lease;
use futures_util::future::join;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Batches in flight at a time. More than one, so that the first release after a quiet moment
/// does not wait for the answer to another.
const MAX_IN_FLIGHT: usize = 4;

/// Releases of a batch: a claim that waits for a batch to be completed waits for at most so many.
const MAX_BATCH: usize = 1_024;

/// The pause between two tries of a release that failed: the first one, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A permit that is to be released.
pub(super) struct Pending {
    pub(super) lease: Arc<Lease>,
    /// Receives whether the permit was still held.
    answer: Option<oneshot::Sender<bool>>,
    /// When the lease has ended at the latest, so that no release is needed.
    gives_up: Instant,
    tries: u32,
    /// When the release is sent again.
    due: Instant,
}

impl Pending {
    pub(super) fn new(
        lease: Arc<Lease>,
        answer: Option<oneshot::Sender<bool>>,
        core: &Core,
    ) -> Self {
        let now = Instant::now();
        Self {
            lease,
            answer,
            // An acquire that may still run does so within its budget, and its grant lasts a lease.
            gives_up: now + core.times.budget() + core.times.lease,
            tries: 0,
            due: now,
        }
    }

    fn wants_answer(&self) -> bool {
        self.answer.is_some() || self.lease.runs_until().is_some()
    }

    fn answer(&mut self, was_held: bool) {
        if let Some(answer) = self.answer.take() {
            // A dropped receiver is ignored.
            let _ = answer.send(was_held);
        }
    }

    /// The release was not answered.
    fn retry(mut self) -> Self {
        let pause = (PAUSE.0 * (1 << self.tries.min(10))).min(PAUSE.1);
        self.tries += 1;
        self.due = Instant::now() + pause;
        self
    }
}

/// The releases to be sent now or later, and those in flight.
#[derive(Default)]
pub(super) struct Releases {
    now: Vec<Pending>,
    later: BTreeMap<(Instant, u64), Pending>,
    in_flight: BTreeMap<u64, Vec<Arc<Lease>>>,
    /// The number of the batch that is sent next.
    next: u64,
    /// For each semaphore, its newest batch that is not completed.
    newest: HashMap<Arc<str>, u64>,
    /// Claims that want to try again when the batches up to a number are completed.
    settling: Vec<(u64, oneshot::Sender<bool>)>,
}

impl Releases {
    pub(super) fn push(&mut self, pending: Pending) {
        // This release is sent in the next batch, or in a later one if that is full.
        let batch = self.next + (self.now.len() / MAX_BATCH) as u64;
        self.newest.insert(pending.lease.name(), batch);
        self.now.push(pending);
    }

    /// Answers whether releases of a semaphore are in flight or about to be sent, once these are
    /// completed. The answer does not wait for a release that has to be tried again later.
    pub(super) fn settle(&mut self, name: &str, settled: oneshot::Sender<bool>) {
        match self.newest.get(name) {
            Some(batch) => self.settling.push((*batch, settled)),
            None => drop(settled.send(false).ok()),
        }
    }

    /// How many permits are not released yet.
    pub(super) fn len(&self) -> usize {
        self.now.len() + self.later.len() + self.in_flight.values().map(Vec::len).sum::<usize>()
    }

    /// The next batch and its number. `None` while enough batches are in flight, so that releases
    /// that arrive under load are sent together.
    pub(super) fn take(&mut self) -> Option<(u64, Vec<Pending>)> {
        if self.in_flight.len() >= MAX_IN_FLIGHT || self.now.is_empty() {
            return None;
        }
        let count = self.now.len().min(MAX_BATCH);
        let pending: Vec<_> = self.now.drain(..count).collect();
        let leases = pending.iter().map(|pending| Arc::clone(&pending.lease));
        let batch = self.next;
        self.next += 1;
        self.in_flight.insert(batch, leases.collect());
        Some((batch, pending))
    }

    /// A batch is completed; `again` has to be tried again.
    pub(super) fn completed(&mut self, batch: u64, again: Vec<Pending>) {
        for lease in self.in_flight.remove(&batch).into_iter().flatten() {
            let name = lease.name();
            if self.newest.get(&name) == Some(&batch) {
                self.newest.remove(&name);
            }
        }
        for pending in again {
            let key = (pending.due, pending.lease.permit.serial);
            self.later.insert(key, pending);
        }
        let oldest = self.in_flight.keys().next().copied();
        let open = oldest.unwrap_or(self.next);
        for (_, settled) in self.settling.extract_if(.., |(batch, _)| *batch < open) {
            // A dropped receiver is ignored.
            let _ = settled.send(true);
        }
    }

    /// Queues releases that are due again. A lease that has ended by now needs no release any more.
    pub(super) fn retry(&mut self, now: Instant) {
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= now
        {
            let mut pending = first.remove();
            match now < pending.gives_up {
                true => self.push(pending),
                false => pending.answer(false),
            }
        }
    }

    /// When the next release is due again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.later.keys().next().map(|(due, _)| *due)
    }

    /// The leases that are not released yet.
    pub(super) fn rest(&self) -> Vec<Arc<Lease>> {
        let waiting = self.now.iter().chain(self.later.values());
        let waiting = waiting.map(|pending| &pending.lease);
        let in_flight = self.in_flight.values().flatten();
        waiting.chain(in_flight).cloned().collect()
    }
}

/// Releases a batch. Returns the releases that have to be tried again.
pub(super) async fn release(core: Arc<Core>, pending: Vec<Pending>) -> Vec<Pending> {
    let (answered, others) = pending.into_iter().partition(Pending::wants_answer);
    let answered = release_all(&core, true, answered);
    let (mut again, more) = join(answered, release_all(&core, false, others)).await;
    again.extend(more);
    again
}

async fn release_all(core: &Core, with_answer: bool, pending: Vec<Pending>) -> Vec<Pending> {
    let mut again = Vec::new();
    let (groups, pending) = groups(pending, |pending| &pending.lease);
    let (mut groups, mut pending) = (&groups[..], pending.into_iter());
    while !groups.is_empty() {
        let some;
        (some, groups) = groups.split_at(together(groups));
        let deadline = Instant::now() + core.times.budget();
        let answers = core
            .attempts
            .protocol
            .release(with_answer, some, deadline)
            .await;
        for ((group, answer), pending) in some.iter().zip(answers).zip(&mut pending) {
            let Ok(answer) = answer else {
                again.extend(pending.into_iter().map(Pending::retry));
                continue;
            };
            core.released.add(&group.name);
            let each = pending.into_iter().zip(answer.of(&group.permits));
            again.extend(each.filter_map(|(pending, held)| answered(answer.now(), pending, held)));
        }
    }
    again
}

/// A release that ran at `now` by the server's clock was answered. Returns the release if it has to
/// be tried again, because an acquire of its lease may run later.
fn answered(now: u64, mut pending: Pending, was_held: bool) -> Option<Pending> {
    let runs_until = pending.lease.runs_until().filter(|end| now <= *end);
    if was_held || runs_until.is_none() {
        pending.answer(was_held);
    }
    // Both times are by the clock of the server that answered.
    let rest = Duration::from_millis(runs_until? + 1 - now);
    pending.due = (Instant::now() + rest).min(pending.gives_up);
    Some(pending)
}
