//! Permits on their way back.

use super::{
    core::Core,
    lease::Lease,
    script::{Group, by_name, chunks},
};
use futures_util::future::join;
use std::{collections::HashMap, mem, sync::Arc};
use tokio::sync::oneshot;

/// Batches in the air at a time. More than one, so that the first release after a quiet moment
/// does not wait for the answer to another.
const FLIGHTS: usize = 4;

/// A permit that is being given back.
pub(super) struct Parting {
    pub(super) lease: Arc<Lease>,
    /// Who wants to know whether it was still held.
    answer: Option<oneshot::Sender<bool>>,
    /// By then its lease has ended anyway. Microseconds, as of [`Core::now`].
    until: u64,
    tries: u32,
}

impl Parting {
    pub(super) fn new(
        lease: Arc<Lease>,
        answer: Option<oneshot::Sender<bool>>,
        core: &Core,
    ) -> Self {
        let until = core.times.now() + core.times.lease.as_micros() as u64;
        Self {
            lease,
            answer,
            until,
            tries: 0,
        }
    }

    fn asks(&self) -> bool {
        self.answer.is_some() || self.lease.is_unsettled()
    }

    /// Tells how it went; gives it back if that has to be tried again.
    ///
    /// An acquire of which no answer came may still lie in a socket, behind this release: it is
    /// released again until it was found.
    fn settle(mut self, was_held: bool) -> Option<Self> {
        if !was_held && self.lease.is_unsettled() {
            return Some(self);
        }
        self.tell(was_held);
        None
    }

    /// Nobody listening is as good as somebody told.
    fn tell(&mut self, was_held: bool) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(was_held);
        }
    }
}

/// What is to be released: now, or in a later turn of the keeper.
#[derive(Default)]
pub(super) struct Outbox {
    now: Vec<Parting>,
    later: Vec<(u64, Parting)>,
    flights: HashMap<u64, Vec<Arc<Lease>>>,
    departed: u64,
    /// Those who want to ask again when what is on its way for a semaphore has landed.
    hopeful: Vec<(Arc<str>, oneshot::Sender<bool>)>,
}

impl Outbox {
    pub(super) fn push(&mut self, parting: Parting) {
        self.now.push(parting);
    }

    /// Says whether releases of a semaphore are on their way, once they have landed. What is to be
    /// tried again later is not waited for.
    pub(super) fn settle(&mut self, name: Arc<str>, landed: oneshot::Sender<bool>) {
        match self.is_on_its_way(&name) {
            true => self.hopeful.push((name, landed)),
            // Who does not listen any more does not want to know.
            false => drop(landed.send(false)),
        }
    }

    fn is_on_its_way(&self, name: &str) -> bool {
        let now = self.now.iter().map(|parting| &parting.lease);
        let mut leases = now.chain(self.flights.values().flatten());
        leases.any(|lease| *lease.name() == *name)
    }

    /// How many permits are not released yet.
    pub(super) fn len(&self) -> usize {
        self.now.len() + self.later.len() + self.flights.values().map(Vec::len).sum::<usize>()
    }

    /// What is to be sent next, and the number of its flight. Nothing while some are in the air,
    /// so that under load what comes meanwhile travels together.
    pub(super) fn take(&mut self) -> Option<(u64, Vec<Parting>)> {
        if self.flights.len() >= FLIGHTS || self.now.is_empty() {
            return None;
        }
        let partings = mem::take(&mut self.now);
        let leases = partings.iter().map(|parting| Arc::clone(&parting.lease));
        self.departed += 1;
        self.flights.insert(self.departed, leases.collect());
        Some((self.departed, partings))
    }

    /// A flight has landed; these have to be tried again, each after a pause twice as long.
    pub(super) fn landed(&mut self, flight: u64, again: Vec<Parting>, turn: u64) {
        self.flights.remove(&flight);
        for mut parting in again {
            let pause = 1 << parting.tries.min(10);
            parting.tries += 1;
            self.later.push((turn + pause, parting));
        }
        for (name, landed) in mem::take(&mut self.hopeful) {
            match self.is_on_its_way(&name) {
                true => self.hopeful.push((name, landed)),
                false => drop(landed.send(true)),
            }
        }
    }

    /// A turn has come. What has expired by now needs no release any more.
    pub(super) fn turn(&mut self, turn: u64, now: u64) {
        for (due, mut parting) in mem::take(&mut self.later) {
            if now >= parting.until {
                parting.tell(false);
            } else if due <= turn {
                self.now.push(parting);
            } else {
                self.later.push((due, parting));
            }
        }
    }

    /// What is left, when there is no time for more.
    pub(super) fn rest(&self) -> impl Iterator<Item = &Arc<Lease>> {
        let later = self.later.iter().map(|(_, parting)| parting);
        let waiting = self.now.iter().chain(later).map(|parting| &parting.lease);
        waiting.chain(self.flights.values().flatten())
    }
}

/// Releases a batch. Returns what has to be tried again.
pub(super) async fn release(core: Arc<Core>, partings: Vec<Parting>) -> Vec<Parting> {
    let (asking, others) = partings.into_iter().partition(Parting::asks);
    let asking = release_all(&core, true, asking);
    let (mut again, more) = join(asking, release_all(&core, false, others)).await;
    again.extend(more);
    again
}

async fn release_all(core: &Core, ask: bool, partings: Vec<Parting>) -> Vec<Parting> {
    let (groups, partings) = group(partings);
    let answers = core.scripts.release(ask, &groups).await;
    let mut again = Vec::new();
    for ((group, partings), answer) in groups.iter().zip(partings).zip(answers) {
        match answer {
            Ok(held) => {
                core.landings.add(&group.name);
                let settled = partings.into_iter().zip(held.of(&group.leases));
                again.extend(settled.filter_map(|(parting, held)| parting.settle(held)));
            }
            Err(_) => again.extend(partings),
        }
    }
    again
}

/// Brings together what is of one semaphore.
fn group(partings: Vec<Parting>) -> (Vec<Group>, Vec<Vec<Parting>>) {
    let by_name = by_name(partings, |parting| parting.lease.name());
    let chunks = by_name.into_iter().flat_map(|(name, partings)| {
        let chunks = chunks(partings, |parting| parting.lease.units.weight);
        chunks
            .into_iter()
            .map(move |chunk| (Arc::clone(&name), chunk))
    });
    let grouped = chunks.map(|(name, partings)| {
        let leases = partings.iter().map(|parting| Arc::clone(&parting.lease));
        let leases = leases.collect();
        (Group { name, leases }, partings)
    });
    grouped.unzip()
}
