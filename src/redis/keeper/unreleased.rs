//! For each semaphore, the releases that claims wait for.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
    time::Instant,
};
use tokio::sync::oneshot;

/// The semaphores that have releases without an answer, and the claims that want to try again once
/// these are answered.
#[derive(Default)]
pub(super) struct Unreleased(HashMap<Arc<str>, Releases>);

#[derive(Default)]
struct Releases {
    /// The releases by number, later ones higher.
    pending: BTreeMap<u64, State>,
    /// Claims that wait for the releases up to a number.
    settling: Vec<(u64, oneshot::Sender<bool>)>,
}

/// Where a release is, and when it is due again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Sent,
    Failed(Instant),
    /// It ran, but an acquire of its lease may run later.
    Answered(Instant),
}

impl Unreleased {
    /// The release with this number is to be sent.
    pub(super) fn insert(&mut self, name: Arc<str>, number: u64) {
        self.0
            .entry(name)
            .or_default()
            .pending
            .insert(number, State::Sent);
    }

    /// The release has failed, and is sent again when it is due.
    pub(super) fn failed(&mut self, name: &str, number: u64, at: Instant) {
        if let Some(releases) = self.0.get_mut(name) {
            releases.pending.insert(number, State::Failed(at));
        }
    }

    /// The release was answered, and is sent again when it is due. Claims that waited for it may try
    /// again.
    pub(super) fn answered(&mut self, name: &str, number: u64, at: Instant) {
        if let Some(releases) = self.0.get_mut(name) {
            releases.pending.insert(number, State::Answered(at));
            releases.notify();
        }
    }

    /// The release was answered, or needs no answer any more.
    pub(super) fn remove(&mut self, name: &str, number: u64) {
        let Some(releases) = self.0.get_mut(name) else {
            return;
        };
        releases.pending.remove(&number);
        releases.notify();
        if releases.pending.is_empty() {
            self.0.remove(name);
        }
    }

    /// Answers whether the semaphore has releases without an answer, once there is none of them
    /// left. Returns those that are not on their way, and when they were due: each is to
    /// be sent at once.
    pub(super) fn settle(
        &mut self,
        name: &str,
        settled: oneshot::Sender<bool>,
    ) -> Vec<(Instant, u64)> {
        let Some(releases) = self.0.get_mut(name) else {
            let _ = settled.send(false);
            return Vec::new();
        };
        let last = releases.pending.keys().next_back().copied();
        releases.settling.push((last.unwrap_or_default(), settled));
        let pending = releases.pending.iter_mut();
        pending
            .filter_map(|(number, state)| Some((state.send()?, *number)))
            .collect()
    }
}

impl Releases {
    /// Answers the claims whose releases were all answered.
    fn notify(&mut self) {
        let is_answered = |state: &State| matches!(state, State::Answered(_));
        let first = self.pending.iter().find(|(_, state)| !is_answered(state));
        let first = first.map(|(number, _)| *number);
        let settled = |(until, _): &mut (u64, _)| first.is_none_or(|first| *until < first);
        for (_, settled) in self.settling.extract_if(.., settled) {
            // A dropped receiver is ignored.
            let _ = settled.send(true);
        }
    }
}

impl State {
    /// The release is sent now. Returns when it was due; `None` if it was sent already.
    fn send(&mut self) -> Option<Instant> {
        match mem::replace(self, Self::Sent) {
            Self::Sent => None,
            Self::Failed(at) | Self::Answered(at) => Some(at),
        }
    }
}
