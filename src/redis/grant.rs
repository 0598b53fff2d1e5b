//! What a permit from Redis can do: be lost, change its weight, be released.

use super::shared::{Held, Store};
use crate::{
    observe::Store::Redis as REDIS,
    redis::{core::Refusal, driver::Refused},
    semaphore::{
        AcquireError, BoxFuture, Claim, Grant, Loss, Permit, PermitLost, Policy, SemaphoreId,
        StoreError, Units,
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

/// The permit of claims that were granted.
pub(super) fn permit(
    store: &Arc<Store>,
    held: Held,
    claims: &[Claim],
) -> Result<Permit, AcquireError> {
    let whole = Arc::new(Whole {
        store: Arc::clone(store),
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
        Ok(Permit::granted(
            level,
            REDIS,
            policy,
            units,
            whole.held.held(number),
        ))
    });
    Permit::join(levels.collect::<Result<_, AcquireError>>()?)
}

impl Grant for Level {
    fn token(&self) -> u64 {
        self.whole.held.token(self.number)
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
        Some(
            self.whole
                .store
                .semaphore_id(self.whole.held.name(self.number)),
        )
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

impl Store {
    /// Why a permit has not grown. It names its policy itself.
    fn growth_refusal(&self, why: Refused, limit: u32) -> AcquireError {
        match why {
            Refused::By(Refusal::Full(_, held)) => AcquireError::Full {
                policy: Policy::DEFAULT,
                limit,
                held,
            },
            Refused::By(Refusal::Revoked) => lost(),
            why => self.failure(why),
        }
    }
}
