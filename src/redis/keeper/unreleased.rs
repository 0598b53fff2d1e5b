//! For each semaphore, the releases that claims wait for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::Arc,
    time::Instant,
};
use tokio::sync::oneshot;

/// The semaphores that have releases without an answer, and the claims that want to try again once
/// these are answered.
#[derive(Default)]
pub(super) struct Unreleased(HashMap<Arc<str>, Releases>);

/// Each release by its number, later ones higher.
#[derive(Default)]
struct Releases {
    unanswered: BTreeSet<u64>,
    /// When those are due that no claim has hurried since. Some of them were answered, but an acquire
    /// of their lease may run later. Others may be in flight.
    unhurried: BTreeMap<u64, Instant>,
    /// Claims by the last release that they wait for.
    settling: BTreeMap<u64, Vec<oneshot::Sender<bool>>>,
}

impl Unreleased {
    /// The release with this number has no answer, and is sent when it is due.
    pub(super) fn insert(&mut self, name: Arc<str>, number: u64, due: Instant) {
        let releases = self.0.entry(name).or_default();
        releases.unanswered.insert(number);
        releases.unhurried.insert(number, due);
    }

    /// The release was answered, and is sent again when it is due. Claims that waited for it may try
    /// again.
    pub(super) fn answered(&mut self, name: &str, number: u64, due: Instant) {
        if let Some(releases) = self.0.get_mut(name) {
            releases.unanswered.remove(&number);
            releases.unhurried.insert(number, due);
            releases.notify();
        }
    }

    /// The release was answered, or needs no answer any more.
    pub(super) fn remove(&mut self, name: &str, number: u64) {
        let Some(releases) = self.0.get_mut(name) else {
            return;
        };
        releases.unanswered.remove(&number);
        releases.unhurried.remove(&number);
        releases.notify();
        if releases.unanswered.is_empty() && releases.unhurried.is_empty() {
            self.0.remove(name);
        }
    }

    /// Answers whether the semaphore has releases without an answer, once there is none of them
    /// left. Returns those that no claim has hurried since, and when they are due: each that is not in
    /// flight is to be sent at once.
    pub(super) fn settle(
        &mut self,
        name: &str,
        settled: oneshot::Sender<bool>,
    ) -> impl Iterator<Item = (Instant, u64)> + use<> {
        let mut unhurried = BTreeMap::new();
        match self.0.get_mut(name) {
            Some(releases) => unhurried = releases.settle(settled),
            // A dropped receiver is ignored.
            None => drop(settled.send(false)),
        }
        unhurried.into_iter().map(|(number, due)| (due, number))
    }
}

impl Releases {
    /// Has the claim wait for all releases, and returns those that no claim has hurried since.
    fn settle(&mut self, settled: oneshot::Sender<bool>) -> BTreeMap<u64, Instant> {
        let unhurried = mem::take(&mut self.unhurried);
        self.unanswered.extend(unhurried.keys());
        let last = self.unanswered.last().copied().unwrap_or_default();
        self.settling.entry(last).or_default().push(settled);
        unhurried
    }

    /// Answers the claims whose releases were all answered.
    fn notify(&mut self) {
        let first = self.unanswered.first().copied();
        while let Some(claims) = self.settling.first_entry()
            && first.is_none_or(|first| *claims.key() < first)
        {
            for settled in claims.remove() {
                // A dropped receiver is ignored.
                let _ = settled.send(true);
            }
        }
    }
}

#[cfg(test)]
mod tests;
