//! The state of one permit in this process.
//!
//! Beside its [`State`], a lease counts the acquires that were never answered. Each acquire carries a
//! deadline by the server's clock. Until then an unanswered acquire may run and grant; after that the
//! server refuses to run it. So a release is final only if it ran after the last of these deadlines.

mod query;
mod state;
mod weight;

use super::protocol::PermitId;
use crate::semaphore::Loss;
use parking_lot::{Mutex, MutexGuard};
use state::{Event, State};
use std::sync::Arc;

/// A permit that is claimed, held or being released. Shared by its holder and the keeper.
pub(super) struct Lease {
    pub(super) serial: u64,
    pub(super) loss: Loss,
    /// The lease of the permit that this one has made heavier. That permit is lost with this one.
    heavier: Option<Arc<Lease>>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// What the semaphore's keys begin with. Shared with other permits of the semaphore once the
    /// keeper has adopted them, because a process may hold very many permits.
    name: Arc<str>,
    permit: PermitId,
    state: State,
    token: u64,
    /// When the lease counts as ended, in microseconds since the store's creation.
    deadline: u64,
    unanswered: u32,
    /// Until when an unanswered acquire may run, ms of the server's clock.
    runs_until: u64,
}

impl Lease {
    pub(super) fn new(name: Arc<str>, permit: PermitId) -> Self {
        Self::with(name, permit, State::Unsent)
    }

    fn with(name: Arc<str>, permit: PermitId, state: State) -> Self {
        Self {
            serial: permit.serial,
            loss: Loss::default(),
            heavier: None,
            inner: Mutex::new(Inner {
                name,
                permit,
                state,
                token: 0,
                deadline: 0,
                unanswered: 0,
                runs_until: 0,
            }),
        }
    }

    pub(super) fn permit(&self) -> PermitId {
        self.lock().permit
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
    /// the owner has released the lease, so the acquire must not be sent.
    pub(super) fn sent(&self, runs_until: u64) -> bool {
        let mut inner = self.lock();
        if inner.state.is_released() {
            return false;
        }
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
        if inner.step(Event::Granted) {
            (inner.token, inner.deadline) = (token, deadline);
            self.loss.clear();
            self.clear_heavier();
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

    /// A refresh did not find the lease: reports the permit lost.
    pub(super) fn displaced(&self) {
        self.end(|_| true);
    }

    /// Reports the permit lost if the deadline has passed.
    pub(super) fn expire(&self, now: u64) {
        self.end(|deadline| now >= deadline);
    }

    /// This process's clock stood still since the deadline was set, so the lease ends that much
    /// sooner by it.
    pub(super) fn advance(&self, missed: u64) {
        let mut inner = self.lock();
        inner.deadline = inner.deadline.saturating_sub(missed);
    }

    /// Reports the permit lost if its lease `has_ended`, given the deadline.
    fn end(&self, has_ended: impl FnOnce(u64) -> bool) {
        let mut inner = self.lock();
        if !has_ended(inner.deadline) || !inner.step(Event::Ended) {
            return;
        }
        inner.deadline = 0;
        // The units that some were released of are acquired again together.
        inner.permit = inner.permit.renewed();
        // Under the lock, so that a grant that follows clears it.
        self.loss.mark();
        drop(inner);
        // A waker may drop the permit, which locks.
        self.loss.wake();
        if let Some(lease) = &self.heavier {
            lease.loss.set();
        }
    }

    /// The owner releases the lease. Returns whether the server needs a release; `false` if the lease
    /// was released before.
    pub(super) fn release(&self) -> bool {
        let mut inner = self.lock();
        let state = inner.state;
        inner.step(Event::Released) && (state.is_known_to_the_server() || inner.unanswered > 0)
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
