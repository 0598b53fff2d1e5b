//! Several permits as one, and how to acquire them level by level.

use super::{
    Acquire, AcquireError, BoxFuture, Claim, ClaimError, Claims, Grant, Loss, Permit, Policy,
    Units,
    future::{all_held, first},
    timer::sleep,
};
use crate::observe::Held;
use std::{
    any::Any,
    future::{Future, pending, poll_fn},
    iter,
    pin::pin,
    slice,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::time::Instant;

/// How often a lost permit is looked at, while a claim waits for a wider limit.
const RECHECK: Duration = Duration::from_millis(50);

/// The default of [`Semaphore::acquire_all`](super::Semaphore::acquire_all), for a store that
/// cannot be kept for later levels.
pub(super) fn acquire_all(claims: Claims, acquire: impl Fn(Claim) -> Acquire) -> Acquire {
    if let Err(error) = claims.check() {
        return Acquire::ready(Err(error));
    }
    let claims = match claims.only() {
        Ok(claim) => return acquire(claim),
        Err(claims) => claims,
    };
    let levels = claims
        .into_iter()
        .map(|claim| (claim.clone(), acquire(claim)));
    let levels: Vec<_> = levels.collect();
    Acquire::pending(async move {
        let mut permits = Vec::with_capacity(levels.len());
        for (claim, acquire) in levels {
            permits.push(granted(&claim, acquire.await)?);
        }
        Permit::join(permits)
    })
}

/// Acquires for each claim in turn, from the narrowest limit to the widest. A refusal drops the
/// permits of the narrower levels, which releases them. A wait counts from here. It is over if an operator
/// revokes what the claim has of a narrower level.
pub(crate) async fn level_by_level(
    claims: Vec<Claim>,
    acquire: impl Fn(Claim) -> Acquire,
) -> Result<Permit, AcquireError> {
    let start = Instant::now();
    let mut permits = Vec::with_capacity(claims.len());
    for claim in claims {
        let wait = claim.wait().map_or(Duration::ZERO, |wait| wait.time);
        let left = wait.saturating_sub(start.elapsed());
        let answer = acquire(claim.clone().with_wait(left));
        let answer = unless_revoked(answer, &permits).await;
        permits.push(granted(&claim, answer)?);
    }
    Permit::join(permits)
}

/// The answer to a claim, unless one of these permits is revoked before.
async fn unless_revoked(answer: Acquire, permits: &[Permit]) -> Result<Permit, AcquireError> {
    if permits.is_empty() {
        return answer.await;
    }
    let mut answer = pin!(answer);
    let mut revoked = pin!(first(pending(), permits.iter().map(revoked).collect()));
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(answer),
        Poll::Pending => revoked
            .as_mut()
            .poll(cx)
            .map(|()| Err(AcquireError::Revoked)),
    })
    .await
}

/// Waits until a permit is lost for ever: one whose lease has ended may be granted again.
fn revoked(permit: &Permit) -> BoxFuture<()> {
    let permit = permit.clone();
    Box::pin(async move {
        permit.lost().await;
        while permit.weight() > 0 {
            sleep(RECHECK).await;
            permit.lost().await;
        }
    })
}

/// The permit of one of several claims. A refusal names its limit.
fn granted(claim: &Claim, answer: Result<Permit, AcquireError>) -> Result<Permit, AcquireError> {
    match answer {
        Ok(permit) => Ok(permit.under(claim.policy().clone())),
        Err(error) => Err(error.at_level(claim)),
    }
}

impl AcquireError {
    /// The same refusal of one of several claims: it names its limit.
    fn at_level(self, claim: &Claim) -> Self {
        match self {
            Self::TimedOut | Self::QueueFull => {
                Self::full(claim, claim.limit().unwrap_or_default())
            }
            error => error,
        }
    }
}

impl Permit {
    /// The limit under which the permit is held, in units: that under which it was granted, or a lower one of a
    /// nested layer that shares it. See [`Permit`] for an example.
    #[inline]
    pub fn limit(&self) -> u32 {
        match self.is_shared() {
            true => self.shared_limit(),
            false => self.0.limit,
        }
    }

    /// How many units of the key were free when the permit was granted, its own not counted. See
    /// [`Permit`] for an example.
    ///
    /// The number stays as it was at that moment. For a permit that waited, that is the moment of
    /// the grant from the queue.
    pub fn remaining(&self) -> u32 {
        let lowered = self.0.limit.saturating_sub(self.limit());
        self.0.remaining.saturating_sub(lowered)
    }

    /// Names the policy of a permit that was just made, and has no clones.
    pub(crate) fn under(mut self, policy: Policy) -> Self {
        if self.0.policy != policy
            && let Some(shared) = Arc::get_mut(&mut self.0)
        {
            shared.held.under(policy.as_str());
            shared.policy = policy;
        }
        self
    }

    /// The policy under which it was granted.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// The policy and the token of each limit that the permit was granted under, from the narrowest
    /// to the widest.
    pub fn tokens(&self) -> Vec<(Policy, Option<u64>)> {
        match self.parts() {
            [] => vec![(self.policy().clone(), self.token())],
            parts => parts.iter().flat_map(Self::tokens).collect(),
        }
    }

    /// The permits that this one is made of, from the narrowest limit to the widest; itself, if it
    /// is of one limit.
    pub fn levels(&self) -> &[Self] {
        match self.parts() {
            [] => slice::from_ref(self),
            parts => parts,
        }
    }

    /// One permit for several, from the narrowest limit to the widest.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Invalid`] if there is none.
    pub(crate) fn join(mut permits: Vec<Self>) -> Result<Self, AcquireError> {
        match permits.len() {
            0 => Err(ClaimError::None.into()),
            1 => Ok(permits.remove(0)),
            _ => Ok(Self::joined(permits.into(), None)),
        }
    }

    /// This permit, which also keeps `outer` until the last clone is dropped: it is lost when one
    /// of the two is, and releasing it releases both. All else that it reports is its own. A level that the two
    /// share is one level.
    ///
    /// Nested layers need it, because a request's extensions hold one permit.
    pub(crate) fn over(self, outer: Self) -> Self {
        if !outer.is_shared() {
            return Self::joined([self, outer].into(), None);
        }
        let own: Vec<_> = self.leaves().into_iter().cloned().collect();
        let permits = iter::once(self).chain(outer.without(&own)).collect();
        Self::joined(permits, Some(Box::new(outer)))
    }

    /// This permit, or its parts, without these levels.
    fn without(&self, own: &[Self]) -> Vec<Self> {
        let is_own = |level: &Self| own.iter().any(|own| Arc::ptr_eq(&own.0, &level.0));
        match self.parts() {
            _ if !self.leaves().into_iter().any(is_own) => vec![self.clone()],
            parts => parts.iter().flat_map(|part| part.without(own)).collect(),
        }
    }

    /// A permit of these levels, the narrowest first, which keeps something until its last clone is dropped.
    pub(crate) fn keeping(permits: Vec<Self>, kept: impl Send + Sync + 'static) -> Self {
        Self::joined(permits.into(), Some(Box::new(kept)))
    }

    fn joined(permits: Box<[Self]>, kept: Option<Kept>) -> Self {
        let narrowest = &permits[0];
        let (policy, remaining) = (narrowest.policy().clone(), narrowest.remaining());
        let units = Units {
            limit: narrowest.limit(),
            weight: narrowest.weight(),
        };
        let levels = Levels {
            permits,
            loss: Loss::default(),
            _kept: kept,
        };
        Self::from_parts(levels, policy, units, remaining, Held::default())
    }
}

type Kept = Box<dyn Any + Send + Sync>;

/// The permits of several limits, the narrowest first.
struct Levels {
    permits: Box<[Permit]>,
    /// Set only when all of them are ended together.
    loss: Loss,
    _kept: Option<Kept>,
}

impl Grant for Levels {
    fn token(&self) -> Option<u64> {
        self.permits[0].token()
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn parts(&self) -> &[Permit] {
        &self.permits
    }

    fn release(&self) -> BoxFuture<bool> {
        // All are queued before the first is awaited.
        let releases = self.permits.iter().map(Permit::release).collect();
        Box::pin(all_held(releases))
    }
}
