//! From a claim to a permit, or the reason why there is none; and what the permit can do: be lost, change its weight,
//! be released.

use super::{
    core::{self, Refusal, Wait},
    driver::Refused,
    error::Error,
    report::given,
    store::{Held, Store},
};
use crate::{
    observe::{Outcome, Store::Redis as REDIS, Waiting},
    semaphore::{
        AcquireError, BoxFuture, Claim, Claims, Grant, Loss, Permit, PermitLost, Policy,
        SemaphoreId, StoreError, Units,
    },
};
use futures_util::{FutureExt, future::Shared};
use std::{
    future::ready,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

impl Store {
    pub(super) async fn acquire(self: Arc<Self>, claims: Claims) -> Result<Permit, AcquireError> {
        let claims = claims.as_slice();
        let _place = self.place(claims)?;
        let levels: Vec<_> = claims.iter().map(|claim| self.level(claim)).collect();
        let policies = claims.iter().map(|claim| claim.policy().clone());
        let mut queue = Queue::default();
        let queued = |level: usize| queue.join(level, &claims[level], &self);
        let wanted = (levels, policies.collect());
        let answer = self.driver.clone().acquire(wanted, queued).await;
        queue.leave(&answer);
        self.note(&answer);
        match answer {
            Ok(held) if held.is_gone() => Err(self.revoked()),
            // It was granted, but its future was not polled before the lease has ended.
            Ok(held) if held.is_lost() => {
                Err(StoreError::new(Error::Expired(self.settings.lease)).into())
            }
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

    fn level(&self, claim: &Claim) -> core::Level {
        let wait = claim.wait().map(|wait| Wait {
            time: wait.time,
            max_waiting: wait.max_waiting,
            head_start: wait.head_start,
        });
        let name = self.name(claim.policy(), claim.key());
        core::Level {
            slot: self.topology.slot(&name),
            name,
            limit: claim.limit().unwrap_or_default(),
            weight: claim.weight(),
            wait,
            is_strict: claim.is_strict(),
            label: claim.label().map(Arc::from),
        }
    }

    /// The permit of claims that were granted.
    fn permit(self: &Arc<Self>, held: Held, claims: &[Claim]) -> Result<Permit, AcquireError> {
        let whole = Arc::new(Whole {
            store: Arc::clone(self),
            held,
            releasing: OnceLock::new(),
        });
        let levels = claims.iter().enumerate().map(|(number, claim)| {
            let (policy, units) = (claim.policy().clone(), claim.units()?);
            let level = Level {
                whole: Arc::clone(&whole),
                number,
                weight: Arc::new(AtomicU32::new(units.weight)),
                is_released: AtomicBool::new(false),
            };
            let held = whole.held.held(number);
            Ok(Permit::granted(level, REDIS, policy, units, held))
        });
        Permit::join(levels.collect::<Result<_, AcquireError>>()?)
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

    /// Why a permit has not grown. It names its policy itself.
    fn growth_refusal(&self, why: Refused, limit: u32) -> AcquireError {
        match why {
            // It does not wait.
            Refused::By(Refusal::Full(_, held) | Refusal::TimedOut(_, held)) => {
                AcquireError::Full {
                    policy: Policy::DEFAULT,
                    limit,
                    held,
                }
            }
            Refused::By(Refusal::Revoked) => lost(),
            why => self.failure(why),
        }
    }

    /// What a refusal means that is no answer of a server.
    fn failure(&self, why: Refused) -> AcquireError {
        match self.fault(why) {
            Some(fault) if !self.driver.is_shut() => StoreError::new(fault).into(),
            _ => AcquireError::Closed,
        }
    }

    /// The failure of a server, or of ours, that a refusal is.
    fn fault(&self, why: Refused) -> Option<Error> {
        match why {
            Refused::By(Refusal::Unavailable(server) | Refusal::Failed(server)) => {
                Some(self.cause(server))
            }
            Refused::By(Refusal::Congested(_)) => Some(Error::Congested),
            Refused::PausedClock => Some(Error::PausedClock),
            Refused::By(_) | Refused::Closed => None,
        }
    }

    /// Why a server was of no use. Without a cause an answer was only too slow.
    fn cause(&self, server: usize) -> Error {
        let too_slow = Error::Timeout(self.settings.timeout);
        self.error(server).unwrap_or(too_slow)
    }

    /// Tells operators when claims begin to fail, and when they succeed again.
    fn note(&self, answer: &Result<Held, Refused>) {
        let fault = match answer {
            Err(Refused::Closed | Refused::By(Refusal::Closed | Refusal::Revoked)) => return,
            Err(why) => self.fault(*why),
            Ok(held) => held.is_degraded().then(|| self.cause(0)),
        };
        match fault {
            Some(fault) => self.reports.claim_failed(&fault),
            None => self.reports.claim_worked(),
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
struct Place<'a>(&'a AtomicU32);

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
    fn join(&mut self, level: usize, claim: &Claim, store: &Store) {
        if self.level.replace(level) != Some(level) {
            let name = || store.name(claim.policy(), claim.key()).to_string();
            self.waiting.join(REDIS, claim.policy().as_str(), name);
        }
    }

    fn leave(&mut self, answer: &Result<Held, Refused>) {
        use Refusal::{Closed, Full, QueueFull, Revoked, TimedOut};
        self.waiting.leave(match answer {
            Ok(_) => Outcome::Admitted,
            // What it waited for was granted, and then a wider level has refused.
            Err(Refused::By(Full(level, _) | QueueFull(level))) if Some(*level) > self.level => {
                Outcome::Admitted
            }
            Err(Refused::By(Full(..) | QueueFull(_) | TimedOut(..))) => Outcome::TimedOut,
            Err(Refused::By(Revoked)) => Outcome::Revoked,
            Err(Refused::By(Closed)) => Outcome::Cancelled,
            Err(_) => Outcome::Unavailable,
        });
    }
}

/// What the levels of a permit share. Its drop releases all of them, in one call.
struct Whole {
    store: Arc<Store>,
    held: Held,
    releasing: OnceLock<Shared<BoxFuture<bool>>>,
}

/// The grant of a level.
struct Level {
    whole: Arc<Whole>,
    number: usize,
    weight: Arc<AtomicU32>,
    is_released: AtomicBool,
}

impl Grant for Level {
    fn token(&self) -> Option<u64> {
        given(self.whole.held.token(self.number))
    }

    fn loss(&self) -> &Loss {
        self.whole.held.loss()
    }

    /// Also compares the end with the clock, in case that the keeper has not reported the loss yet.
    fn is_lost(&self) -> bool {
        self.whole.held.is_lost()
    }

    fn is_degraded(&self) -> bool {
        self.whole.held.is_degraded()
    }

    fn semaphore_id(&self) -> Option<SemaphoreId> {
        let Whole { store, held, .. } = &*self.whole;
        Some(store.semaphore_id(held.name(self.number)))
    }

    fn weight(&self) -> Option<u32> {
        match self.whole.held.is_gone() {
            true => Some(0),
            false => Some(self.weight.load(Relaxed)),
        }
    }

    fn grow(&self, units: Units) -> BoxFuture<Result<(), AcquireError>> {
        if self.is_lost() || self.whole.held.is_gone() {
            return Box::pin(ready(Err(lost())));
        }
        let (whole, weight) = (Arc::clone(&self.whole), Arc::clone(&self.weight));
        let growing = whole.held.grow(self.number, (units.weight, units.limit));
        Box::pin(async move {
            match growing.await {
                Err(why) => Err(whole.store.growth_refusal(why, units.limit)),
                Ok(()) if whole.held.is_gone() => Err(lost()),
                Ok(()) => {
                    weight.fetch_add(units.weight, Relaxed);
                    Ok(())
                }
            }
        })
    }

    fn shrink(&self, units: u32) -> Result<BoxFuture<()>, AcquireError> {
        let freed = self.whole.held.shrink(self.number, units);
        let freed = freed.ok_or_else(lost)?;
        self.weight.fetch_sub(units, Relaxed);
        Ok(Box::pin(freed))
    }

    fn release(&self) -> BoxFuture<bool> {
        if self.is_released.swap(true, Relaxed) {
            return Box::pin(ready(false));
        }
        let release = || self.whole.held.release().boxed().shared();
        Box::pin(self.whole.releasing.get_or_init(release).clone())
    }
}

fn lost() -> AcquireError {
    StoreError::new(PermitLost).into()
}
