//! The way of a claim: one try, or the queue. One [budget](super::clock::Times::budget) covers a call for the claim
//! from its first byte to its answer.

use super::{
    dispatch::{self, Level},
    error::Error,
    lease::Lease,
    outage::Reservation,
    protocol::Acquired,
    shared::Store,
    wait::{self, Wanted},
};
use crate::semaphore::{AcquireError, Claim, Permit, StoreError, Wait, timer::timeout_at};
use futures_util::future::{Either, select};
use std::{
    ops::Range,
    pin::pin,
    slice,
    sync::Arc,
    time::{Duration, Instant},
};

impl Store {
    /// Acquires for a claim that may have a reservation in the share; by the deadline if it does not wait.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        claim: &Claim,
        deadline: Instant,
        reserved: Option<Reservation<'_>>,
    ) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        self.open()?;
        let serials = self.serials(1);
        // From here on, a drop releases what was claimed.
        let grant = self.lease(claim, units, serials.start);
        // A shutdown that has missed this lease has set `closed` before this check.
        self.check_open()?;
        let answer = match claim.wait() {
            None => self.try_once(&grant.lease, deadline).await,
            // Boxed, so that the future of a claim that does not wait stays small.
            Some(wait) => {
                let wanted = [(Arc::clone(&grant.lease), Some(wait))];
                Box::pin(self.wait(&wanted, serials)).await
            }
        };
        self.outage.note(&grant.lease, &answer);
        let answer = answer?;
        self.check_open()?;
        match answer {
            Acquired::Granted(levels) => {
                let held = levels.first().map_or(0, |(_, held)| *held);
                self.granted(slice::from_ref(&grant.lease), reserved)
                    .await?;
                grant.permit(claim, held)
            }
            Acquired::Full { held, .. } if claim.wait().is_none() => {
                Err(AcquireError::full(claim, held))
            }
            Acquired::QueueFull { .. } => Err(AcquireError::QueueFull),
            Acquired::Revoked => Err(AcquireError::Revoked),
            Acquired::Full { .. } | Acquired::Queued { .. } => Err(AcquireError::TimedOut),
        }
    }

    /// Takes note of leases that were granted. An error: they are of no use.
    pub(super) async fn granted(
        &self,
        leases: &[Arc<Lease>],
        reserved: Option<Reservation<'_>>,
    ) -> Result<(), AcquireError> {
        match self.outage.is_well() {
            true => Ok(()),
            false => Box::pin(self.outage.granted(leases, reserved)).await,
        }
    }

    pub(super) async fn try_once(
        &self,
        lease: &Arc<Lease>,
        deadline: Instant,
    ) -> Result<Acquired, AcquireError> {
        let full = |answer: &Acquired| matches!(answer, Acquired::Full { .. }).then_some(0);
        self.try_twice(slice::from_ref(lease), deadline, full, || {
            let lease = Arc::clone(lease);
            let position = None;
            let claim = dispatch::Claim::one(Level { lease, position }, deadline);
            self.dispatch.acquire(claim)
        })
        .await
    }

    /// Acquires without waiting. If a key is full while this process is releasing units of the key,
    /// the claim is tried once more: a request that a client has just finished should not stop its
    /// next one. If there is no time for a second try, the first answer stands.
    ///
    /// `full` names the lease whose key is full.
    pub(super) async fn try_twice<T, F>(
        &self,
        leases: &[Arc<Lease>],
        deadline: Instant,
        full: impl Fn(&T) -> Option<usize>,
        attempt: impl Fn() -> F,
    ) -> Result<T, AcquireError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let before = self.released(leases.iter());
        let first = attempt().await.map_err(StoreError::new)?;
        let Some(full) = full(&first).and_then(|full| leases.get(full)) else {
            return Ok(first);
        };
        if !self
            .has_released(full, leases.iter(), before, deadline)
            .await
        {
            return Ok(first);
        }
        let second = timeout_at(deadline, attempt()).await;
        Ok(second.ok().and_then(Result::ok).unwrap_or(first))
    }

    /// Waits in queues until all levels are granted, the wait is over, the store shuts down or it is
    /// unavailable.
    pub(super) async fn wait(
        &self,
        wanted: &[Wanted],
        serials: Range<u64>,
    ) -> Result<Acquired, AcquireError> {
        let mut closed = self.closed.subscribe();
        let granted = self.wait_twice(wanted, serials);
        // Not `tokio::select!`: when its task has used up its budget (`tokio::task::coop`), that
        // polls nothing, and a try that is polled later would be sent first.
        let closed = pin!(closed.wait_for(|closed| *closed));
        // All levels of one call are on one server.
        let name = wanted.first().map(|(lease, _)| lease.name());
        let opened = pin!(self.outage.opened(name.as_deref().unwrap_or_default()));
        match select(pin!(granted), select(closed, opened)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((Either::Left(_), _)) => Err(AcquireError::Closed),
            Either::Right((Either::Right((error, _)), _)) => Err(StoreError::new(error).into()),
        }
    }

    /// Waits in queues. If one is full while a claim of this process is leaving it, it is joined once
    /// more: a request that a client has just given up should not stop its next one.
    async fn wait_twice(
        &self,
        wanted: &[Wanted],
        serials: Range<u64>,
    ) -> Result<Acquired, AcquireError> {
        let since = Instant::now();
        let end = since + self.times.budget();
        let wait = async |wanted: &[Wanted]| {
            let is_trial = wanted.iter().any(is_on_trial);
            let slot = self
                .notifications
                .register(serials.clone(), is_trial, self.max_waiting);
            let slot = slot.ok_or(AcquireError::Overloaded)?;
            wait::granted(&self.dispatch, self.times, wanted, slot).await
        };
        let leases = || wanted.iter().map(|(lease, _)| lease);
        let before = self.released(leases());
        let first = wait(wanted).await?;
        let Acquired::QueueFull { level, .. } = first else {
            return Ok(first);
        };
        match self
            .has_released(&wanted[level].0, leases(), before, end)
            .await
        {
            true => wait(&left(wanted, since.elapsed())).await,
            false => Ok(first),
        }
    }

    /// Whether releases for one of these were answered since `before`, after those for the key that is full
    /// are, until the deadline: then there may be room.
    async fn has_released<'a>(
        &self,
        full: &Lease,
        leases: impl Iterator<Item = &'a Arc<Lease>>,
        before: u64,
        deadline: Instant,
    ) -> bool {
        if Instant::now() >= deadline {
            return false;
        }
        let settled = timeout_at(deadline, self.keeper.settled(full.name())).await;
        settled.is_ok_and(|settled| settled || self.released(leases) != before)
    }

    /// A number that changes whenever a release for one of these is answered.
    fn released<'a>(&self, leases: impl Iterator<Item = &'a Arc<Lease>>) -> u64 {
        let counts = leases.map(|lease| self.keeper.released(&lease.name()));
        counts.fold(0, u64::wrapping_add)
    }
}

fn is_on_trial((_, wait): &Wanted) -> bool {
    wait.is_some_and(|wait| wait.is_trial)
}

/// What is left of the waits of a claim that waits anew. A head start grows, if there is one: a queue of
/// claims without is faster.
fn left(wanted: &[Wanted], waited: Duration) -> Vec<Wanted> {
    let left = |wait: Wait| Wait {
        time: wait.time.saturating_sub(waited),
        head_start: match wait.head_start {
            Duration::ZERO => Duration::ZERO,
            head_start => head_start.saturating_add(waited),
        },
        ..wait
    };
    let wanted = wanted.iter();
    wanted
        .map(|(lease, wait)| (Arc::clone(lease), wait.map(left)))
        .collect()
}
