//! The way of a claim, from its numbers to a permit or the reason why there is none.

use super::{
    grant,
    shared::{Held, Store},
};
use crate::redis::{
    core::{Level, Refusal, Wait},
    driver::Refused,
    error::Error,
    protocol::name,
};
use crate::{
    observe::{Meter, Outcome, Store::Redis as REDIS, Waiting},
    semaphore::{AcquireError, Claim, Claims, Permit, StoreError},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

impl Store {
    pub(super) async fn acquire(self: Arc<Self>, claims: Claims) -> Result<Permit, AcquireError> {
        let claims = claims.as_slice();
        let _place = self.place(claims)?;
        let levels: Vec<_> = claims.iter().map(|claim| self.level(claim)).collect();
        let policies = claims.iter().map(|claim| claim.policy().clone());
        let mut queue = Queue::default();
        let queued = |level: usize| queue.join(level, &claims[level], &self.prefix);
        let wanted = (levels, policies.collect());
        let answer = self.driver.clone().acquire(wanted, queued).await;
        queue.leave(&answer);
        self.note(&answer);
        match answer {
            Ok(held) => self.permit(held, claims),
            Err(why) => Err(self.refusal(why, claims)),
        }
    }

    /// A place among the claims that may wait, if these do.
    fn place(&self, claims: &[Claim]) -> Result<Option<Place<'_>>, AcquireError> {
        let mut waits = claims.iter().filter_map(Claim::wait).peekable();
        if waits.peek().is_none() {
            return Ok(None);
        }
        let waiting = &self.waiting[usize::from(waits.any(|wait| wait.is_trial))];
        let before = waiting.fetch_add(1, Relaxed);
        let place = Place(waiting);
        match before < self.max_waiting {
            true => Ok(Some(place)),
            false => Err(AcquireError::Overloaded),
        }
    }

    fn level(&self, claim: &Claim) -> Level {
        let wait = claim.wait().map(|wait| Wait {
            time: wait.time,
            max_waiting: wait.max_waiting,
            head_start: wait.head_start,
        });
        let name = name(&self.prefix, claim.policy(), claim.key());
        Level {
            slot: self.topology.slot(&name),
            name,
            limit: claim.limit().unwrap_or_default(),
            weight: claim.weight(),
            wait,
            is_strict: claim.is_strict(),
            label: claim.label().map(Arc::from),
        }
    }

    fn permit(self: &Arc<Self>, held: Held, claims: &[Claim]) -> Result<Permit, AcquireError> {
        if held.is_gone() {
            return Err(self.revoked());
        }
        // It was granted, but its future was not polled before the lease has ended.
        if held.is_lost() {
            return Err(StoreError::new(Error::Expired(self.times.lease)).into());
        }
        grant::permit(self, held, claims)
    }

    fn refusal(&self, why: Refused, claims: &[Claim]) -> AcquireError {
        let is_one = claims.len() == 1;
        let full = |level: usize, held| AcquireError::full(&claims[level], held);
        match why {
            Refused::By(Refusal::TimedOut(..)) if is_one => AcquireError::TimedOut,
            Refused::By(Refusal::QueueFull(_)) if is_one => AcquireError::QueueFull,
            Refused::By(Refusal::Full(level, held) | Refusal::TimedOut(level, held)) => {
                full(level, held)
            }
            Refused::By(Refusal::QueueFull(level)) => {
                full(level, claims[level].limit().unwrap_or_default())
            }
            Refused::By(Refusal::Revoked) => self.revoked(),
            why => self.failure(why),
        }
    }

    /// An operator has revoked it, or it was granted just before a shutdown.
    fn revoked(&self) -> AcquireError {
        match self.driver.is_shut() {
            true => AcquireError::Closed,
            false => AcquireError::Revoked,
        }
    }
}

/// A place among the claims that may wait. It is free again when dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The queue that a claim waits in, as it is counted.
#[derive(Default)]
struct Queue {
    level: Option<usize>,
    waiting: Waiting,
}

impl Queue {
    /// It waits at this level, perhaps since before.
    fn join(&mut self, level: usize, claim: &Claim, prefix: &str) {
        if self.level.replace(level) != Some(level) {
            let (policy, key) = (claim.policy(), claim.key());
            let name = || name(prefix, policy, key).to_string();
            self.waiting.join(&Meter::of(REDIS, policy), name);
        }
    }

    fn leave(&mut self, answer: &Result<Held, Refused>) {
        self.waiting.leave(match answer {
            Ok(_) => Outcome::Admitted,
            Err(Refused::By(why)) => match why {
                // What it waited for was granted, and then a wider level has refused.
                Refusal::Full(level, _) | Refusal::QueueFull(level)
                    if Some(*level) > self.level =>
                {
                    Outcome::Admitted
                }
                Refusal::Full(..) | Refusal::QueueFull(_) | Refusal::TimedOut(..) => {
                    Outcome::TimedOut
                }
                Refusal::Revoked => Outcome::Revoked,
                Refusal::Unavailable(_) | Refusal::Failed(_) | Refusal::Congested(_) => {
                    Outcome::Unavailable
                }
                Refusal::Closed => Outcome::Cancelled,
            },
            Err(Refused::Closed | Refused::PausedClock) => Outcome::Unavailable,
        });
    }
}
