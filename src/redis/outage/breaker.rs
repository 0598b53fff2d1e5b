//! Knows whether a server answers, from the outcomes of all calls.

mod alarm;
mod kept;

use super::{
    alert::Alert,
    cause::{Evidence, MAX_FAILURES},
    phase::Phase,
    policy::WhenUnavailable,
    summary::Summary,
};
use crate::redis::{
    clock::{CONNECT, CONNECT_PAUSE, Times},
    error::Error,
};
use parking_lot::Mutex;
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Timeouts between two claims that try while the breaker is open: each may take one.
const MIN_BETWEEN: u32 = 4;

/// See the module docs.
pub(super) struct Breaker {
    times: Times,
    policy: WhenUnavailable,
    /// Whether all its keys live on one server, to which the store makes connections by itself.
    one_server: bool,
    summary: Arc<Summary>,
    /// Shared by all breakers whose keys may live on one server.
    pub(super) alert: Arc<Alert>,
    /// The phase, for who must not wait for a lock: every call and every claim reads it.
    phase: AtomicU8,
    /// Leases that end before this are kept, microseconds since the store's creation.
    kept_until: AtomicU64,
    state: Mutex<State>,
    changes: watch::Sender<Phase>,
}

struct State {
    failures: u32,
    /// Whether there was no connection: a server that has been started again may be empty.
    was_gone: bool,
    /// Whether the server has answered others all the time, since the first call in a row failed.
    is_local: bool,
    /// Whether it was settling when the first call in a row failed.
    was_settling: bool,
    /// The last failure, and a name on the server that it was of.
    error: Error,
    key: Arc<str>,
    /// When the first call in a row failed.
    alarmed: Instant,
    /// When the server has answered again.
    returned: Instant,
}

impl Breaker {
    pub(super) fn new(
        times: Times,
        policy: WhenUnavailable,
        one_server: bool,
        alert: &Arc<Alert>,
    ) -> Self {
        let now = Instant::now();
        Self {
            times,
            policy,
            one_server,
            summary: Arc::clone(&alert.summary),
            alert: Arc::clone(alert),
            phase: AtomicU8::new(Phase::Well as u8),
            kept_until: AtomicU64::new(0),
            state: Mutex::new(State {
                failures: 0,
                was_gone: false,
                is_local: true,
                was_settling: false,
                error: Error::Timeout(times.timeout),
                key: Arc::default(),
                alarmed: now,
                returned: now,
            }),
            changes: watch::Sender::new(Phase::Well),
        }
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Well,
            1 => Phase::Failing,
            2 => Phase::Settling,
            _ => Phase::Open,
        }
    }

    /// Takes the outcomes of the calls of one send, each with its key. One that was answered is
    /// enough. Returns whether they are the first in a row that failed.
    pub(super) fn observe<'a>(
        &self,
        outcomes: impl IntoIterator<Item = (&'a str, Option<&'a Error>)>,
    ) -> bool {
        let mut failure = None;
        for (key, outcome) in outcomes {
            match outcome.map_or(Evidence::Works, Error::evidence) {
                Evidence::Works => {
                    if self.answered() {
                        self.alert.closes(outcome.is_none());
                    }
                    return false;
                }
                Evidence::Unsent => {}
                Evidence::Fails => failure = outcome.map(|error| (key, error)),
            }
        }
        failure.is_some_and(|(key, error)| self.failing(key, error))
    }

    /// Returns whether it was open.
    fn answered(&self) -> bool {
        if self.phase() == Phase::Well {
            return false;
        }
        let mut state = self.state.lock();
        state.failures = 0;
        let (phase, now) = (self.phase(), Instant::now());
        let was_gone = mem::take(&mut state.was_gone) || phase == Phase::Open;
        let was_local = mem::replace(&mut state.is_local, true);
        let was_settling = mem::take(&mut state.was_settling);
        if matches!(phase, Phase::Well | Phase::Settling) {
            self.settle(&state);
            return false;
        }
        self.keep_until(self.times.held_until(now));
        if was_settling && was_local && !was_gone {
            self.change(Phase::Settling);
            self.settle(&state);
            return false;
        }
        state.returned = now;
        if was_gone {
            self.summary.returned();
        }
        // Without degraded permits there is nothing to settle. Other processes may have taken any
        // failure of the server for an outage, and have admitted their shares.
        let is_doubtful = self.policy.shares() && !was_local;
        let settles = was_gone || was_settling || is_doubtful;
        self.change(match settles && self.policy.admits() {
            true => Phase::Settling,
            false => Phase::Well,
        });
        phase == Phase::Open
    }

    /// An answer after the time to settle ends it: without one the server may have fallen silent.
    fn settle(&self, state: &State) {
        if self.phase() == Phase::Settling && state.returned.elapsed() >= self.settling_time() {
            self.change(Phase::Well);
        }
    }

    /// Returns whether it is the first failure in a row.
    fn failing(&self, key: &str, error: &Error) -> bool {
        let mut state = self.state.lock();
        let is_first = state.failures == 0;
        if is_first {
            state.alarmed = Instant::now();
        }
        state.failures += 1;
        state.was_gone |= error.is_gone();
        // What the server itself says is no fault of this process.
        state.is_local &= matches!(error, Error::Timeout(_)) && self.works();
        self.keep_until(u64::MAX);
        state.error = error.clone();
        state.key = key.into();
        self.alarm(&mut state);
        let is_stall = state.alarmed.elapsed() < self.times.timeout;
        let opens = state.failures >= MAX_FAILURES && !is_stall && self.phase() != Phase::Open;
        if opens {
            self.change(Phase::Open);
        }
        drop(state);
        if opens {
            self.alert.opens(error);
        }
        is_first
    }

    pub(super) fn is_of_one_server(&self) -> bool {
        self.one_server
    }

    /// Whether a claim may try although the breaker is open: one of the store now and then where keys live
    /// on several nodes, because the probe goes to only one of them.
    pub(super) fn may_try(&self) -> bool {
        let between = self.times.timeout * MIN_BETWEEN;
        !self.one_server && self.summary.may_try(self.times.now(), between)
    }

    /// How long the store counts as unsettled once it has answered: longer than a connection that
    /// was begun too soon, the pause between two probes, the probe, the keeper's next tick and its
    /// calls take together.
    pub(super) fn settling_time(&self) -> Duration {
        CONNECT + CONNECT_PAUSE + self.times.timeout * 4 + self.times.tick() * 2
    }

    /// When it is clear whether failures are an outage: more of them open the breaker by then.
    pub(super) fn clear_at(&self) -> Instant {
        self.state.lock().alarmed + self.times.timeout
    }

    pub(super) fn last_error(&self) -> Error {
        self.state.lock().error.clone()
    }

    /// A name on the server of the last failure.
    pub(super) fn last_key(&self) -> Arc<str> {
        Arc::clone(&self.state.lock().key)
    }

    /// Changes of the phase. Short ones may be missed.
    pub(super) fn changes(&self) -> watch::Receiver<Phase> {
        self.changes.subscribe()
    }

    fn change(&self, phase: Phase) {
        self.summary.change(self.phase(), phase);
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.changes.send_replace(phase);
        if phase == Phase::Open {
            self.summary.opens.send_modify(|opens| *opens += 1);
        }
    }
}

#[cfg(test)]
mod tests;
