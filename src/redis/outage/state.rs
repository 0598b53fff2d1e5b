//! What a store knows of its own availability.

use super::{
    breaker::Breaker,
    breakers::Breakers,
    live::Live,
    phase::Phase,
    policy::WhenUnavailable,
    share::{Counts, Reservation, Wanted},
};
use crate::{
    redis::{clock::Times, error::Error, lease::Lease},
    semaphore::{AcquireError, StoreError, timer::timeout_at},
};
use std::{
    error::Error as StdError,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The policy, and what it needs to decide.
pub(in crate::redis) struct Outage {
    pub(super) policy: WhenUnavailable,
    pub(super) breakers: Arc<Breakers>,
    pub(super) times: Times,
    pub(super) live: Live,
    counts: Counts,
    /// After how many outages the degraded permits have been acquired.
    reconciled: AtomicU64,
    /// Whether the store shuts down, so that this process announces itself no more.
    leaving: AtomicBool,
}

impl Outage {
    pub(in crate::redis) fn new(
        policy: WhenUnavailable,
        breakers: Arc<Breakers>,
        times: Times,
    ) -> Self {
        Self {
            policy,
            breakers,
            times,
            live: Live::default(),
            counts: Counts::default(),
            reconciled: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
        }
    }

    /// Whether all is well on all servers.
    #[inline]
    pub(in crate::redis) fn is_well(&self) -> bool {
        self.breakers.summary.is_well()
    }

    /// Whether a server is to acquire the degraded permits.
    pub(in crate::redis) fn is_settling(&self) -> bool {
        let is_settling = |breaker: &Arc<Breaker>| breaker.phase() == Phase::Settling;
        !self.is_well() && self.breakers.all().iter().any(is_settling)
    }

    /// Whether nothing but probes is to be sent to the server of a semaphore. Where that may be one of
    /// several the keeper's calls are probes too.
    pub(in crate::redis) fn is_silent(&self, name: &str) -> bool {
        if self.is_well() {
            return false;
        }
        let breaker = self.breakers.of(name);
        breaker.phase() == Phase::Open && breaker.is_of_one_server()
    }

    /// Waits until the breaker of a semaphore's server is open. Returns why.
    pub(in crate::redis) async fn opened(&self, name: &str) -> Error {
        let breaker = self.breakers.of(name);
        let mut phases = breaker.changes();
        // The sender lives as long as the breaker.
        let _ = phases.wait_for(|phase| *phase == Phase::Open).await;
        breaker.last_error()
    }

    pub(in crate::redis) fn last_error(&self, name: &str) -> StoreError {
        StoreError::new(self.breakers.of(name).last_error())
    }

    /// A lease whose deadline is before this, in microseconds, is kept though it has ended.
    pub(in crate::redis) fn kept_until(&self, lease: &Lease) -> u64 {
        match self.breakers.summary.has_kept() {
            true => self.breakers.of(&lease.name()).kept_until(),
            false => 0,
        }
    }

    /// This process's clock stood still.
    pub(in crate::redis) fn advance(&self, missed: Duration) {
        let breakers = self.breakers.all();
        breakers.iter().for_each(|breaker| breaker.advance(missed));
    }

    /// Changes whenever all is not well any more on a server.
    pub(in crate::redis) fn alarms(&self) -> watch::Receiver<u64> {
        self.breakers.summary.alarms.subscribe()
    }

    /// The alarm for which the keeper has to count all leases that this process holds, if the policy
    /// has to know. Later ones count themselves.
    pub(in crate::redis) fn uncounted(&self) -> Option<u64> {
        let alarm = *self.breakers.summary.alarms.borrow();
        (self.policy.shares() && !self.counts.is_counted(alarm)).then_some(alarm)
    }

    pub(in crate::redis) fn count_all(&self, leases: &[Arc<Lease>], alarm: u64) {
        self.counts.count_all(leases, alarm);
    }

    /// What these leases want of the share.
    fn wanted(&self, leases: &[Arc<Lease>]) -> Vec<Wanted> {
        let wanted = leases.iter().map(|lease| {
            let permit = lease.permit();
            self.level(lease.name(), permit.limit, permit.units())
        });
        wanted.collect()
    }

    /// What a level of a claim wants of the share.
    pub(super) fn level(&self, name: Arc<str>, limit: u32, units: u32) -> Wanted {
        Wanted {
            name,
            units,
            share: self.policy.share(limit, self.live.count()),
        }
    }

    /// Leases were granted. While a server is not well others may have admitted claims in their stead,
    /// so without a reservation in the share they are of no use.
    pub(in crate::redis) async fn granted(
        &self,
        leases: &[Arc<Lease>],
        reserved: Option<Reservation<'_>>,
    ) -> Result<(), AcquireError> {
        let Some(first) = leases.first().filter(|_| self.policy.shares()) else {
            return Ok(());
        };
        if let Some(reserved) = reserved {
            reserved.pass_on(leases);
            return Ok(());
        }
        let breaker = self.breakers.of(&first.name());
        if breaker.phase() == Phase::Well || leases.iter().any(|lease| lease.is_strict()) {
            leases.iter().for_each(|lease| self.counts.count(lease));
            return Ok(());
        }
        let is_counted = self.are_counted(Instant::now()).await;
        match is_counted && self.counts.count_within(leases, &self.wanted(leases)) {
            true => Ok(()),
            false => Err(StoreError::new(breaker.last_error()).into()),
        }
    }

    /// Takes what the server has answered to a claim, if it was sent.
    #[inline]
    pub(in crate::redis) fn note<T>(&self, lease: &Lease, answer: &Result<T, AcquireError>) {
        let error = match answer {
            Ok(_) if self.breakers.summary.is_alerted() => None,
            Err(AcquireError::Store(error)) => Some(error),
            _ => return,
        };
        let error = error.and_then(StdError::source);
        let alert = &self.breakers.of(&lease.name()).alert;
        match error.map(<dyn StdError>::downcast_ref) {
            None => alert.claim_worked(&self.times),
            // Due to this process alone.
            Some(None | Some(Error::Congested | Error::Expired(_))) => {}
            Some(Some(error)) => alert.claim_failed(error, &self.times),
        }
    }

    /// A lease was released.
    #[inline]
    pub(in crate::redis) fn released(&self, lease: &Lease) {
        self.counts.released(lease);
    }

    /// Whether a server is back from an outage. `true` once for each.
    pub(in crate::redis) fn has_returned(&self) -> bool {
        let returns = *self.breakers.summary.returns.borrow();
        self.reconciled.swap(returns, Ordering::Relaxed) != returns
    }

    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Reserves units of this process's share, by `end` at most. `None`: the share is used up.
    pub(super) async fn reserve(&self, wanted: &[Wanted], end: Instant) -> Option<Reservation<'_>> {
        match self.are_counted(end).await {
            true => self.counts.take(wanted),
            false => None,
        }
    }

    /// Waits until all permits are counted, until `end` at most, but long enough for the keeper.
    async fn are_counted(&self, end: Instant) -> bool {
        let alarm = *self.breakers.summary.alarms.borrow();
        let end = end.max(Instant::now() + self.times.timeout / 4);
        let counted = timeout_at(end, self.counts.are_counted(alarm));
        counted.await.is_ok()
    }
}

#[cfg(test)]
mod tests;
