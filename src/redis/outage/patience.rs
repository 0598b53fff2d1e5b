//! Waits for what a failure turns out to be, and for the end of an outage.

use super::{breaker::Breaker, phase::Phase};
use crate::semaphore::timer::timeout_at;
use std::time::Instant;

impl Breaker {
    /// Waits for what a failure turns out to be, until `end` at most. `true`: the server has answered
    /// others meanwhile, so the claim may try again. If it is an outage, what was granted to short
    /// requests has mostly ended by then: so a process that had more than its share has released it
    /// when others take theirs.
    pub(super) async fn was_a_blip(&self, end: Instant) -> bool {
        let mut phases = self.changes();
        let is_clear = phases.wait_for(|phase| *phase != Phase::Failing);
        let clear = timeout_at(self.clear_at().min(end), is_clear).await;
        clear.is_ok_and(|phase| phase.is_ok_and(|phase| *phase != Phase::Open))
    }

    /// Waits until all is well again or the breaker opens, until `end` at most.
    pub(super) async fn settled(&self, end: Instant) {
        let mut phases = self.changes();
        let settled = phases.wait_for(|phase| matches!(phase, Phase::Well | Phase::Open));
        let _ = timeout_at(end, settled).await;
    }
}
