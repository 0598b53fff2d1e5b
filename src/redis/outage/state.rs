//! What a store knows of its own availability.

use super::{
    breaker::Breaker,
    live::Live,
    phase::Phase,
    policy::WhenUnavailable,
    share::{Counts, Place, Wanted},
};
use crate::{
    redis::{clock::Times, error::Error, lease::Lease},
    semaphore::StoreError,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::time::timeout_at;

/// The policy, and what it needs to decide.
pub(in crate::redis) struct Outage {
    pub(super) policy: WhenUnavailable,
    pub(super) breaker: Arc<Breaker>,
    pub(super) times: Times,
    pub(super) live: Live,
    counts: Counts,
    /// After how many outages the places of degraded permits have been claimed.
    reconciled: AtomicU64,
}

impl Outage {
    pub(in crate::redis) fn new(
        policy: WhenUnavailable,
        breaker: Arc<Breaker>,
        times: Times,
    ) -> Self {
        Self {
            policy,
            breaker,
            times,
            live: Live::default(),
            counts: Counts::default(),
            reconciled: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(in crate::redis) fn phase(&self) -> Phase {
        self.breaker.phase()
    }

    pub(in crate::redis) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    pub(in crate::redis) fn is_settling(&self) -> bool {
        self.phase() == Phase::Settling
    }

    /// Whether nothing but probes is to be sent. On several nodes the keeper's calls are probes too.
    pub(in crate::redis) fn is_silent(&self) -> bool {
        self.phase() == Phase::Open && self.breaker.is_of_one_server()
    }

    /// Waits until the breaker is open. Returns why.
    pub(in crate::redis) async fn opened(&self) -> Error {
        let mut phases = self.breaker.changes();
        // The sender lives as long as `self`.
        let _ = phases.wait_for(|phase| *phase == Phase::Open).await;
        self.breaker.last_error()
    }

    /// Waits until all is well again, until `end` at most.
    pub(super) async fn settled(&self, end: Instant) {
        let mut phases = self.breaker.changes();
        let settled = phases.wait_for(|phase| *phase != Phase::Settling);
        let _ = timeout_at(end.into(), settled).await;
    }

    pub(in crate::redis) fn last_error(&self) -> StoreError {
        StoreError::new(self.breaker.last_error())
    }

    /// Leases whose deadline is before this, in microseconds, are kept though they have ended.
    pub(in crate::redis) fn kept_until(&self) -> u64 {
        self.breaker.kept_until()
    }

    /// The alarm for which the keeper has to count all leases that this process holds, if the policy
    /// has to know. Later ones count themselves.
    pub(in crate::redis) fn uncounted(&self) -> Option<u64> {
        let alarm = self.breaker.alarms();
        let is_due = self.policy.shares() && self.phase() != Phase::Well;
        (is_due && !self.counts.is_counted(alarm)).then_some(alarm)
    }

    pub(in crate::redis) fn count_all(&self, leases: &[Arc<Lease>], alarm: u64) {
        self.counts.count_all(leases, alarm);
    }

    /// A lease was granted.
    #[inline]
    pub(in crate::redis) fn granted(&self, lease: &Lease) {
        if self.phase() != Phase::Well && self.policy.shares() {
            self.counts.count(lease);
        }
    }

    /// A lease was released.
    #[inline]
    pub(in crate::redis) fn released(&self, lease: &Lease) {
        self.counts.released(lease);
    }

    /// Whether the store is back from an outage. `true` once for each.
    pub(in crate::redis) fn has_returned(&self) -> bool {
        let returns = self.breaker.returns();
        self.reconciled.swap(returns, Ordering::Relaxed) != returns
    }

    /// Waits for what a failure turns out to be, until `end` at most. `true`: the server has answered
    /// others meanwhile, so the claim may try again. If it is an outage, what was granted to short
    /// requests has mostly ended by then: so a process that had more than its share has given it back
    /// when others take theirs.
    pub(super) async fn was_a_blip(&self, end: Instant) -> bool {
        let mut phases = self.breaker.changes();
        self.breaker.suspect();
        if self.live.count() <= 1 {
            return false;
        }
        let is_clear = phases.wait_for(|phase| *phase != Phase::Failing);
        let clear = timeout_at(self.breaker.clear_at().min(end).into(), is_clear).await;
        clear.is_ok_and(|phase| phase.is_ok_and(|phase| *phase == Phase::Well))
    }

    /// Takes a place in this process's share, by `end` at most. `None`: the share is used up.
    pub(super) async fn place(&self, wanted: &[Wanted], end: Instant) -> Option<Place<'_>> {
        let counted = self.counts.are_counted(self.breaker.alarms());
        timeout_at(end.into(), counted).await.ok()?;
        self.counts.take(wanted)
    }
}
