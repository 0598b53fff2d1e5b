//! For each semaphore, the releases that claims wait for.

use std::{
    collections::{BTreeMap, HashMap},
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
    /// The releases by number, later ones higher. A release that has failed says when it is due.
    due: BTreeMap<u64, Option<Instant>>,
    /// Claims that wait for the releases up to a number.
    settling: Vec<(u64, oneshot::Sender<bool>)>,
}

impl Unreleased {
    /// The release with this number is to be sent.
    pub(super) fn insert(&mut self, name: Arc<str>, number: u64) {
        self.0.entry(name).or_default().due.insert(number, None);
    }

    /// The release has failed, and is sent again when it is due.
    pub(super) fn failed(&mut self, name: &str, number: u64, at: Instant) {
        if let Some(releases) = self.0.get_mut(name) {
            releases.due.insert(number, Some(at));
        }
    }

    /// The release was answered, or needs no answer any more.
    pub(super) fn remove(&mut self, name: &str, number: u64) {
        let Some(releases) = self.0.get_mut(name) else {
            return;
        };
        releases.due.remove(&number);
        let first = releases.due.keys().next().copied();
        let is_settled = |until: u64| first.is_none_or(|first| until < first);
        let settled = |(until, _): &mut (u64, _)| is_settled(*until);
        for (_, settled) in releases.settling.extract_if(.., settled) {
            // A dropped receiver is ignored.
            let _ = settled.send(true);
        }
        if first.is_none() {
            self.0.remove(name);
        }
    }

    /// Answers whether the semaphore has releases without an answer, once there is none of them
    /// left. Returns those that have failed, and when they were due: each is to be sent at once.
    pub(super) fn settle(
        &mut self,
        name: &str,
        settled: oneshot::Sender<bool>,
    ) -> Vec<(Instant, u64)> {
        let Some(releases) = self.0.get_mut(name) else {
            let _ = settled.send(false);
            return Vec::new();
        };
        let last = releases.due.keys().next_back().copied();
        releases.settling.push((last.unwrap_or_default(), settled));
        let failed = releases.due.iter_mut();
        failed
            .filter_map(|(number, due)| Some((due.take()?, *number)))
            .collect()
    }
}
