//! The way of a claim: to the server or, while that is unavailable, to the policy.

use super::{
    breaker::Breaker,
    claims::{is_strict, less, longest},
    phase::Phase,
    policy::WhenUnavailable,
    share::{Reservation, Wanted},
};
use crate::{
    redis::{clock::at, error::Error, protocol::name, shared::Store},
    semaphore::{Acquire, AcquireError, Claim, Permit, StoreError, level_by_level},
};
use std::{error::Error as _, slice, sync::Arc, time::Instant};

impl Store {
    /// Acquires for one claim.
    pub(in crate::redis) async fn grant(
        self: Arc<Self>,
        claim: Claim,
    ) -> Result<Permit, AcquireError> {
        let start = Instant::now();
        let claims = slice::from_ref(&claim);
        if self.is_outage(claims) {
            return Box::pin(self.during_outage(claims, start)).await;
        }
        let deadline = start + self.times.budget();
        match self.acquire(&claim, deadline, None).await {
            Err(error) if self.is_for_policy(claims, &error) => {
                Box::pin(self.decide(claims, start, error)).await
            }
            answer => answer,
        }
    }

    /// Acquires for several claims: all or none. Where keys live on several nodes each level is decided
    /// by itself: the policy decides for those nodes only that are unavailable.
    pub(in crate::redis) async fn grant_all(
        self: Arc<Self>,
        claims: Vec<Claim>,
    ) -> Result<Permit, AcquireError> {
        if self.takes_several() {
            let start = Instant::now();
            let answer = match self.is_outage(&claims) {
                true => self.during_outage(&claims, start).await,
                false => self.try_server(&claims, start).await,
            };
            // Unless the server has just said that the keys live on several nodes.
            if answer.is_ok() || self.takes_several() {
                return answer;
            }
        }
        level_by_level(claims, |claim| {
            Acquire::pending(Arc::clone(&self).grant(claim))
        })
        .await
    }

    /// Whether the server of these claims may be unavailable, or has just come back.
    fn is_outage(&self, claims: &[Claim]) -> bool {
        !self.outage.is_well() && self.breaker(claims).phase() != Phase::Well
    }

    /// Whether the policy decides about a claim that failed: the server is unavailable, or others wait
    /// for it in such numbers that the claim was not sent.
    fn is_for_policy(&self, claims: &[Claim], error: &AcquireError) -> bool {
        let AcquireError::Store(error) = error else {
            return false;
        };
        match error.source().and_then(|source| source.downcast_ref()) {
            Some(Error::Congested) => {
                matches!(self.breaker(claims).phase(), Phase::Failing | Phase::Open)
            }
            error => error.is_some_and(Error::is_unavailable),
        }
    }

    /// The breaker of the server of these claims.
    fn breaker(&self, claims: &[Claim]) -> Arc<Breaker> {
        let name = |claim: &Claim| name(&self.prefix, claim.policy(), claim.key());
        let name = claims.first().map(name).unwrap_or_default();
        self.outage.breakers.of(&name)
    }

    /// Acquires from the server; if that is unavailable the policy decides.
    async fn try_server(
        self: &Arc<Self>,
        claims: &[Claim],
        start: Instant,
    ) -> Result<Permit, AcquireError> {
        match self.from_server(claims, start, None).await {
            Err(error) if self.is_for_policy(claims, &error) => {
                self.decide(claims, start, error).await
            }
            answer => answer,
        }
    }

    async fn from_server(
        self: &Arc<Self>,
        claims: &[Claim],
        start: Instant,
        reserved: Option<Reservation<'_>>,
    ) -> Result<Permit, AcquireError> {
        let deadline = start + self.times.budget();
        match claims {
            [claim] => self.acquire(claim, deadline, reserved).await,
            claims => self.acquire_all(claims, deadline, reserved).await,
        }
    }

    /// The store was unavailable when the claim came, or has just come back.
    async fn during_outage(
        self: &Arc<Self>,
        claims: &[Claim],
        start: Instant,
    ) -> Result<Permit, AcquireError> {
        self.check_open()?;
        claims
            .iter()
            .try_for_each(|claim| claim.units().map(drop))?;
        let shares = self.outage.policy.shares() && !is_strict(claims);
        let breaker = self.breaker(claims);
        match breaker.phase() {
            Phase::Open if !breaker.may_try() => {
                let error = StoreError::new(breaker.last_error());
                self.decide(claims, start, error.into()).await
            }
            _ if shares => self.settle(claims, start).await,
            _ => self.try_server(claims, start).await,
        }
    }

    /// Acquires with a reservation in the share; if the server is unavailable the policy decides.
    async fn settle(
        self: &Arc<Self>,
        claims: &[Claim],
        start: Instant,
    ) -> Result<Permit, AcquireError> {
        match self.with_reservation(claims, start).await {
            Ok(Some(permit)) => Ok(permit),
            Ok(None) => Err(StoreError::new(self.breaker(claims).last_error()).into()),
            Err(error) if self.is_for_policy(claims, &error) => {
                self.decide(claims, start, error).await
            }
            Err(error) => Err(error),
        }
    }

    /// Acquires from a server that other processes may have lost. They may have admitted claims, and
    /// may not have granted those again yet, so the claim has to have its reservation in the share
    /// too. `None`: the share is used up. A claim that waits does so until all is well again, while there
    /// is time for an answer: a call without would end as a failure of the server.
    async fn with_reservation(
        self: &Arc<Self>,
        claims: &[Claim],
        start: Instant,
    ) -> Result<Option<Permit>, AcquireError> {
        let end = self.end(claims, start);
        let latest = end - self.times.least();
        let wanted = self.wanted(claims);
        let reserved = self
            .unless_closed(self.outage.reserve(&wanted, end))
            .await?;
        if reserved.is_none() {
            if claims.iter().all(|claim| claim.wait().is_none()) {
                return Ok(None);
            }
            let breaker = self.breaker(claims);
            self.unless_closed(breaker.settled(latest)).await?;
            match breaker.phase() {
                Phase::Well => {}
                Phase::Settling => return Ok(None),
                _ => return Err(StoreError::new(breaker.last_error()).into()),
            }
        }
        if Instant::now() >= latest {
            return Ok(None);
        }
        let left = less(claims, start.elapsed());
        self.from_server(&left, start, reserved).await.map(Some)
    }

    /// Lets the policy decide, because of `error`.
    async fn decide(
        self: &Arc<Self>,
        claims: &[Claim],
        start: Instant,
        error: AcquireError,
    ) -> Result<Permit, AcquireError> {
        self.check_open()?;
        match self.outage.policy {
            _ if is_strict(claims) => Err(error),
            WhenUnavailable::Refuse => Err(error),
            WhenUnavailable::Admit => self.admit(claims, None),
            WhenUnavailable::Share | WhenUnavailable::ShareOf(_) => {
                self.share(claims, start, error).await
            }
        }
    }

    /// Admits a claim that has a reservation in the share.
    async fn share(
        self: &Arc<Self>,
        claims: &[Claim],
        start: Instant,
        error: AcquireError,
    ) -> Result<Permit, AcquireError> {
        // A claim whose wait is over has its budget left, as for its last poll.
        let end = at(start, longest(claims).saturating_add(self.times.budget()));
        let breaker = self.breaker(claims);
        breaker.suspect();
        // Alone, nobody has more than its share.
        let is_alone = self.outage.live.count() <= 1;
        if !is_alone && self.unless_closed(breaker.was_a_blip(end)).await? {
            match self.with_reservation(claims, start).await {
                Ok(Some(permit)) => return Ok(permit),
                Ok(None) => return Err(error),
                Err(error) if self.is_for_policy(claims, &error) => {}
                Err(error) => return Err(error),
            }
        }
        let wanted = self.wanted(claims);
        match self
            .unless_closed(self.outage.reserve(&wanted, end))
            .await?
        {
            Some(reserved) => {
                breaker.admits();
                self.admit(claims, Some(reserved))
            }
            None => Err(error),
        }
    }

    /// When a claim has to be decided: at the end of its wait, or of its budget.
    fn end(&self, claims: &[Claim], start: Instant) -> Instant {
        at(start, longest(claims).max(self.times.budget()))
    }

    fn wanted(&self, claims: &[Claim]) -> Vec<Wanted> {
        let wanted = claims.iter().map(|claim| {
            let name = name(&self.prefix, claim.policy(), claim.key());
            let limit = claim.limit().unwrap_or_default();
            self.outage.level(name, limit, claim.weight())
        });
        wanted.collect()
    }
}
