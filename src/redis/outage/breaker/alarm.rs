//! When all is not well any more.

use super::{Breaker, Phase, State};
use std::time::Instant;

impl Breaker {
    /// A claim has failed, so all is not well.
    pub(in crate::redis::outage) fn suspect(&self) {
        let mut state = self.state.lock();
        state.is_local &= self.works();
        self.alarm(&mut state);
    }

    /// Another part of the keys may be unavailable because their only server is. A call for this key shows
    /// whether this part is available. Whether it was all the time is unknown.
    pub(in crate::redis::outage) fn doubt(&self, key: &str) {
        let mut state = self.state.lock();
        if matches!(self.phase(), Phase::Well | Phase::Settling) {
            state.is_local = false;
            state.key = key.into();
            self.alarm(&mut state);
        }
    }

    /// A claim is admitted, so this is an outage, whatever it was at first.
    pub(in crate::redis::outage) fn admits(&self) {
        self.state.lock().is_local = false;
    }

    /// Whether the server has answered a call that was sent within the last timeout. Then no other
    /// process has taken its silence for an outage, and what fails is due to this process, as a runtime
    /// whose threads are blocked.
    pub(super) fn works(&self) -> bool {
        let timeout = self.times.timeout.as_micros() as u64;
        let since = self.times.now().saturating_sub(timeout);
        self.summary.has_worked_since(since)
    }

    /// It is unclear whether this is an outage, also while the server settles after another one.
    pub(super) fn alarm(&self, state: &mut State) {
        let phase = self.phase();
        if !matches!(phase, Phase::Well | Phase::Settling) {
            return;
        }
        state.alarmed = Instant::now();
        state.was_settling = phase == Phase::Settling;
        // From now on: a short lease may end before it is clear what this is.
        self.keep_until(u64::MAX);
        let fails = || self.change(Phase::Failing);
        match phase {
            Phase::Well => self.summary.alarm(fails),
            // What this process holds is still counted.
            _ => fails(),
        }
    }
}
