//! The state of one permit in this process.
//!
//! Beside its [`State`], a lease counts the acquires that were never answered. Each acquire carries a
//! deadline by the server's clock. Until then an unanswered acquire may run and grant; after that the
//! server refuses to run it. So a release is final only if it ran after the last of these deadlines.

mod degraded;
mod end;
mod query;
mod state;
mod weight;

use super::protocol::PermitId;
use crate::{observe::Meter, semaphore::Loss};
use parking_lot::{Mutex, MutexGuard};
use state::{Event, State};
use std::sync::Arc;

/// A permit that is claimed, held or being released. Shared by its holder and the keeper.
pub(super) struct Lease {
    pub(super) serial: u64,
    pub(super) loss: Loss,
    /// The first lease of the same permit, if this one has added units. That one reports the loss of
    /// both.
    first: Option<Arc<Lease>>,
    /// Whether it is lost when it ends, even while the store is unavailable.
    strict: bool,
    /// Counts what happens to it.
    meter: Meter,
    inner: Mutex<Inner>,
}

struct Inner {
    /// What the semaphore's keys begin with. Shared with other permits of the semaphore once the
    /// keeper has adopted them, because a process may hold very many permits.
    name: Arc<str>,
    permit: PermitId,
    state: State,
    /// How many of the leases that have added units to the permit are lost.
    added_lost: u16,
    token: u64,
    /// When the lease counts as ended, in microseconds since the store's creation.
    deadline: u64,
    unanswered: u32,
    /// Until when an unanswered acquire may run, ms of the server's clock.
    runs_until: u64,
    /// Whether the server may have known its id before the last acquire.
    is_known: bool,
    /// Whether its units are among those that the process has counted.
    counted: bool,
    /// Whether the permit was told to be degraded, and none of its degraded leases was granted since.
    told_degraded: bool,
}

impl Lease {
    pub(super) fn new(name: Arc<str>, permit: PermitId) -> Self {
        Self::with(Inner {
            name,
            permit,
            state: State::Unsent,
            added_lost: 0,
            token: 0,
            deadline: 0,
            unanswered: 0,
            runs_until: 0,
            is_known: false,
            counted: false,
            told_degraded: false,
        })
    }

    fn with(inner: Inner) -> Self {
        Self {
            serial: inner.permit.serial,
            loss: Loss::default(),
            first: None,
            strict: false,
            meter: Meter::default(),
            inner: Mutex::new(inner),
        }
    }

    /// This lease, as one that is counted there.
    pub(super) fn metered(self, meter: Meter) -> Self {
        Self { meter, ..self }
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(super) fn permit(&self) -> PermitId {
        self.lock().permit.clone()
    }

    /// The permit as it is acquired, and whether the server may know its id.
    pub(super) fn wanted(&self) -> (PermitId, bool) {
        let inner = self.lock();
        (inner.permit.clone(), inner.is_known)
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.lock().name)
    }

    /// Replaces the name by an equal one that is shared.
    pub(super) fn share_name(&self, name: &Arc<str>) {
        self.lock().name = Arc::clone(name);
    }

    pub(super) fn token(&self) -> u64 {
        self.lock().token
    }

    /// An acquire is about to be sent, which the server refuses to run after `runs_until`. `false`:
    /// the owner has released the lease, or its id may not be acquired again, so the acquire must not
    /// be sent.
    pub(super) fn sent(&self, runs_until: u64) -> bool {
        let mut inner = self.lock();
        if inner.state.is_released() || inner.needs_new_id() {
            return false;
        }
        inner.is_known = inner.unanswered > 0 || !inner.state.is_unknown_to_the_server();
        inner.step(Event::Sent);
        inner.unanswered += 1;
        inner.runs_until = inner.runs_until.max(runs_until);
        true
    }

    /// The acquire had no effect: it never left this process, or the server refused to run it.
    pub(super) fn not_sent(&self) {
        let mut inner = self.lock();
        inner.answered();
        if inner.unanswered == 0 {
            inner.step(Event::NotSent);
        }
    }

    /// The acquire was granted.
    pub(super) fn granted(&self, token: u64, deadline: u64) {
        let mut inner = self.lock();
        inner.answered();
        let (was_lost, was_degraded) = (inner.state.is_lost(), inner.state.is_degraded());
        if inner.step(Event::Granted) {
            (inner.token, inner.deadline) = (token, deadline);
            if was_lost {
                self.found(&inner);
            }
            if was_degraded {
                self.recovered(&mut inner);
            }
        }
    }

    /// The acquire joined the queue, or kept its position there.
    pub(super) fn queued(&self) {
        let mut inner = self.lock();
        inner.answered();
        inner.step(Event::Queued);
    }

    /// The acquire was refused.
    pub(super) fn refused(&self) {
        let mut inner = self.lock();
        inner.answered();
        inner.step(Event::Refused);
    }

    /// A message says that the lease was granted from the queue, until `deadline`. Returns whether
    /// the lease was waiting for that.
    pub(super) fn notified(&self, token: u64, deadline: u64) -> bool {
        let mut inner = self.lock();
        let is_news = inner.step(Event::Notified);
        if is_news {
            (inner.token, inner.deadline) = (token, deadline);
        }
        is_news
    }

    /// A refresh found the lease held, so the server keeps it until the new deadline at least.
    pub(super) fn refreshed(&self, deadline: u64) {
        let mut inner = self.lock();
        inner.step(Event::Refreshed);
        if inner.state == State::Held {
            inner.deadline = inner.deadline.max(deadline);
        }
    }

    pub(super) fn refresh_failed(&self) {
        self.lock().step(Event::RefreshFailed);
    }

    /// This process's clock stood still since the deadline was set, so the lease ends that much
    /// sooner by it.
    pub(super) fn advance(&self, missed: u64) {
        let mut inner = self.lock();
        inner.deadline = inner.deadline.saturating_sub(missed);
    }

    /// A release that was sent at `sent` has no answer, so it may have run. If that was before the
    /// deadline, a later release that finds nothing does not mean that the lease had ended.
    pub(super) fn release_failed(&self, sent: u64) {
        let mut inner = self.lock();
        if sent < inner.deadline {
            inner.step(Event::ReleaseFailed);
        }
    }

    /// Until when an unanswered acquire may run, ms of the server's clock; `None`: all are answered.
    pub(super) fn runs_until(&self) -> Option<u64> {
        let inner = self.lock();
        (inner.unanswered > 0).then_some(inner.runs_until)
    }

    pub(super) fn deadline(&self) -> u64 {
        self.lock().deadline
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    /// Applies the event. Returns whether the state changed.
    fn step(&mut self, event: Event) -> bool {
        let next = self.state.next(event);
        self.state = next.unwrap_or(self.state);
        next.is_some()
    }

    /// An acquire was answered. For a released lease the answer is too late: a release that runs
    /// after that acquire frees what it granted.
    fn answered(&mut self) {
        if !self.state.is_released() {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
