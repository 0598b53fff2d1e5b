//! Sends releases.

use super::{
    core::Core,
    refresh::{groups, together},
};
use crate::redis::{error::Error, lease::Lease, protocol::Group};
use futures_util::future::join;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The pause between two tries of a release that failed: the first one, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How often claims may have an answered release sent again before it is due. Bounded, because claims
/// are also refused while other holders fill the key, and many releases may be in this state.
const MAX_HURRIED: u32 = 2;

/// A permit that is to be released.
pub(super) struct Pending {
    pub(super) lease: Arc<Lease>,
    /// Later releases have higher numbers.
    pub(super) number: u64,
    /// Receives whether the permit was still held.
    answer: Option<oneshot::Sender<bool>>,
    /// When the lease has ended at the latest, so that no release is needed.
    pub(super) gives_up: Instant,
    /// How many tries in a row had no answer.
    tries: u32,
    /// When the release is sent again.
    pub(super) due: Instant,
    /// How often it was sent before it was due.
    hurried: u32,
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
            number: 0,
            answer,
            // An acquire that may still run does so within its budget, and its grant lasts a lease.
            gives_up: now + core.times.budget() + core.times.lease,
            tries: 0,
            due: now,
            hurried: 0,
        }
    }

    fn wants_answer(&self) -> bool {
        self.answer.is_some() || self.lease.runs_until().is_some()
    }

    pub(super) fn answer(&mut self, was_held: bool) {
        if let Some(answer) = self.answer.take() {
            // A dropped receiver is ignored.
            let _ = answer.send(was_held);
        }
    }

    /// Whether the last try had no answer.
    pub(super) fn has_failed(&self) -> bool {
        self.tries > 0
    }

    /// Whether a claim may have the release sent again before it is due.
    pub(super) fn may_hurry(&self) -> bool {
        self.hurried < MAX_HURRIED
    }

    /// The release is sent again now, and soon again if that fails.
    pub(super) fn hurried(mut self) -> Self {
        self.due = Instant::now();
        self.tries = 0;
        self.hurried += 1;
        self
    }

    /// The release was not answered.
    fn retry(mut self) -> Self {
        let pause = (PAUSE.0 * (1 << self.tries.min(10))).min(PAUSE.1);
        self.tries += 1;
        self.due = Instant::now() + pause;
        self
    }

    /// The release was sent at `sent`, and has no answer.
    fn failed(self, sent: u64, error: &Error) -> Self {
        if !error.had_no_effect() {
            self.lease.release_failed(sent);
        }
        self.retry()
    }

    /// The release was sent at `sent`, and ran at `now` by the server's clock. Returns the release if
    /// it has to be sent again, because an acquire of its lease may run later.
    fn answered(mut self, sent: u64, now: u64, was_held: bool) -> Option<Self> {
        self.tries = 0;
        let runs_until = self.lease.runs_until().filter(|end| now <= *end);
        if was_held || runs_until.is_none() {
            let was_held = was_held || self.lease.is_freed(sent);
            self.answer(was_held);
        }
        // Both times are by the clock of the server that answered.
        let rest = Duration::from_millis(runs_until? + 1 - now);
        self.due = (Instant::now() + rest).min(self.gives_up);
        Some(self)
    }
}

/// Releases a batch. Returns the releases that have to be sent again.
pub(super) async fn release(core: Arc<Core>, pending: Vec<Pending>) -> Vec<Pending> {
    let is_silent = |pending: &Pending| core.outage.is_silent(&pending.lease.name());
    // All are on one server.
    if pending.first().is_some_and(is_silent) {
        return pending.into_iter().map(Pending::retry).collect();
    }
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
        let of_some = pending.by_ref().take(some.len());
        if !release_some(core, with_answer, some, of_some, &mut again).await {
            // Each of the remaining sends would wait for a timeout.
            again.extend(pending.flatten().map(Pending::retry));
            break;
        }
    }
    again
}

/// Releases groups in one send. Returns whether the server can be reached.
async fn release_some(
    core: &Core,
    with_answer: bool,
    groups: &[Group],
    pending: impl Iterator<Item = Vec<Pending>>,
    again: &mut Vec<Pending>,
) -> bool {
    let start = Instant::now();
    let (sent, deadline) = (core.times.micros(start), start + core.times.budget());
    let protocol = &core.attempts.protocol;
    let answers = protocol.release(with_answer, groups, deadline).await;
    let mut is_reached = false;
    for ((group, answer), pending) in groups.iter().zip(answers).zip(pending) {
        is_reached |= !answer.as_ref().is_err_and(Error::is_transient);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                again.extend(
                    pending
                        .into_iter()
                        .map(|pending| pending.failed(sent, &error)),
                );
                continue;
            }
        };
        core.released.add(&group.name);
        for (pending, was_held) in pending.into_iter().zip(answer.of(&group.permits)) {
            if answer.is_repeated() {
                pending.lease.release_failed(sent);
            }
            again.extend(pending.answered(sent, answer.now(), was_held));
        }
    }
    is_reached
}

#[cfg(test)]
mod tests;
