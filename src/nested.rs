//! A limit inside of another one that counts the same request in the same semaphore.
//!
//! That is a mistake: one of the two was meant to have a policy of its own. If each acquired a permit, a
//! request would wait for itself, and the limit would be half of what it says. So the inner limit shares the
//! outer one's permit, which is held until both are done with it, under the lower limit and with the larger
//! weight. What was held when the permit was granted says whether the inner limit would have granted it at that
//! moment; the store is asked again only for a larger weight.

use crate::{
    semaphore::{
        Acquire, AcquireError, BoxFuture, Claim, Claims, Grant, Level, Loss, Permit, Resizing,
        SemaphoreId, Units,
    },
    settings::Settings,
};
use http::Extensions;
use std::{
    cell::RefCell,
    future::ready,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

thread_local! {
    /// The permits of the requests for which a service is polled now.
    static POLLED_FOR: RefCell<Vec<Permit>> = const { RefCell::new(Vec::new()) };
}

/// Whether a service of this process acquires in `poll_ready`, before there is a request whose extensions have
/// the outer permit. Most processes have none, and their requests need not say for whom they poll.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// A level of a permit, which may be that of an outer limit.
struct Source {
    permit: Permit,
    number: usize,
    /// Another inner call may share it when this is dropped.
    _taken: Option<Taken>,
}

/// A level that an inner call shares.
struct Taken(Permit, usize);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.level(self.1).give_back();
    }
}

impl Source {
    fn level(&self) -> Level<'_> {
        self.permit.level(self.number)
    }

    /// The weight that a claim needs of a share: as much as fits under the lower limit.
    ///
    /// # Errors
    ///
    /// Full, if more were held when the level was granted than the claim's limit allows: then the claim would
    /// have been refused at that moment. What others hold of a degraded level is not known, and it does not grow.
    fn weight_for(&self, claim: &Claim, settings: &Settings) -> Result<u32, AcquireError> {
        let (level, limit) = (self.level(), settings.limit_of(claim));
        let (others, wanted) = match level.is_degraded() {
            true => (0, 0),
            false => (level.held().saturating_sub(level.granted()), claim.weight()),
        };
        let own = level.weight().min(limit);
        match others.saturating_add(own) > limit || limit == 0 {
            true => Err(AcquireError::under(claim.policy(), limit, level.held())),
            false => Ok(wanted.min(level.limit_now())),
        }
    }

    async fn grow_to(&self, weight: u32) -> Result<(), AcquireError> {
        let limit = self.level().limit_now();
        match weight > self.level().weight() {
            true => {
                let levels = vec![(self.number, Units { limit, weight })];
                self.permit.resize_levels(levels).await
            }
            false => Ok(()),
        }
    }
}

/// The grant of a request that shares something: a view of levels of other permits, which its permit keeps.
struct Shares {
    levels: Vec<Source>,
    loss: Loss,
}

impl Grant for Shares {
    fn token(&self, level: usize) -> Option<u64> {
        self.levels[level].level().token()
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn weight(&self, level: usize) -> Option<u32> {
        Some(self.levels[level].level().weight())
    }

    fn limit(&self, level: usize) -> Option<u32> {
        Some(self.levels[level].level().limit_now())
    }

    /// The permits are changed beside it.
    fn resize(&self, _: Vec<(usize, Units)>) -> Resizing<'_> {
        Box::pin(ready(Ok(())))
    }

    fn semaphore_id(&self, level: usize) -> Option<SemaphoreId> {
        self.levels[level].level().semaphore_id()
    }

    /// The permits are released beside it.
    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }
}

/// Acquires what a request claims. What the permit of an outer limit has of it is shared.
#[inline]
pub(crate) fn acquire(claims: Claims, extensions: &Extensions, settings: &Settings) -> Acquire {
    match extensions.get::<Permit>() {
        None => settings.acquire(claims),
        Some(outer) => acquire_within(outer, claims, settings),
    }
}

#[cold]
fn acquire_within(outer: &Permit, claims: Claims, settings: &Settings) -> Acquire {
    let share = |claim| share(outer, claim, settings);
    let shares: Vec<_> = claims.as_slice().iter().map(share).collect();
    match shares.iter().any(Option::is_some) {
        false => settings.acquire(claims),
        true => beside(shares, claims, settings),
    }
}

/// Acquires what is not shared. Then the shares grow, without a wait, because the request holds units that
/// others may wait for.
fn beside(shares: Vec<Option<Source>>, claims: Claims, settings: &Settings) -> Acquire {
    let weights = match claims
        .check()
        .and_then(|()| weights(&shares, &claims, settings))
    {
        Err(error) => return Acquire::ready(Err(error)),
        Ok(weights) => weights,
    };
    let left = claims.as_slice().iter().zip(&shares);
    let left = left.filter(|(_, share)| share.is_none());
    let left: Vec<_> = left.map(|(claim, _)| claim.clone()).collect();
    let acquire = (!left.is_empty()).then(|| settings.acquire(left.into()));
    Acquire::pending(async move {
        let acquired = match acquire {
            Some(acquire) => Some(acquire.await?),
            None => None,
        };
        for (share, weight) in shares.iter().flatten().zip(weights) {
            share.grow_to(weight).await?;
        }
        Ok(whole(shares, claims.as_slice(), acquired.as_ref()))
    })
}

/// The weight of each share.
fn weights(
    shares: &[Option<Source>],
    claims: &Claims,
    settings: &Settings,
) -> Result<Vec<u32>, AcquireError> {
    let shared = shares.iter().zip(claims);
    let shared = shared.filter_map(|(share, claim)| Some((share.as_ref()?, claim)));
    shared
        .map(|(share, claim)| share.weight_for(claim, settings))
        .collect()
}

/// The permit of all claims: the levels that it shares, and those that were acquired for it.
fn whole(shares: Vec<Option<Source>>, claims: &[Claim], acquired: Option<&Permit>) -> Permit {
    let mut own = acquired.into_iter().flat_map(|permit| {
        (0..permit.levels().len()).map(|number| Source {
            permit: permit.clone(),
            number,
            _taken: None,
        })
    });
    let levels = shares
        .into_iter()
        .filter_map(|share| share.or_else(|| own.next()));
    let levels: Vec<_> = levels.collect();
    let shown = claims.iter().zip(&levels).map(|(claim, source)| {
        let level = source.level();
        let claim = claim.clone().with_limit(level.limit());
        (claim.with_weight(level.granted()), level.held())
    });
    let shown: Vec<_> = shown.collect();
    let kept: Vec<_> = levels.iter().map(|source| source.permit.clone()).collect();
    let loss = Loss::default();
    let shown = shown.iter().map(|(claim, held)| (claim, *held));
    let permit = Permit::uncounted(Shares { levels, loss }, shown, false);
    kept.iter().fold(permit, Permit::with_outer)
}

/// Polls a service for a request that is admitted with this permit. One that acquires in `poll_ready` would
/// wait for that permit for ever if the two are of one semaphore.
#[inline]
pub(crate) fn poll_for<T>(permit: impl FnOnce() -> Option<Permit>, poll: impl FnOnce() -> T) -> T {
    let permit = IS_ASKED.load(Relaxed).then(permit).flatten();
    let _end = permit.map(PolledFor::begin);
    poll()
}

/// While this exists, a service is polled for the holder of a permit. Ends also if the poll panics.
struct PolledFor;

impl PolledFor {
    fn begin(permit: Permit) -> Option<Self> {
        let begun = POLLED_FOR.try_with(|polled| polled.borrow_mut().push(permit));
        begun.is_ok().then_some(Self)
    }
}

impl Drop for PolledFor {
    fn drop(&mut self) {
        let permit = POLLED_FOR.try_with(|polled| polled.borrow_mut().pop());
        drop(permit);
    }
}

/// From now on requests say for whom they poll.
pub(crate) fn ask() {
    IS_ASKED.store(true, Relaxed);
}

/// Whether a request for which a service is polled holds units of the claim's semaphore. The call shows whether
/// it is the request that is called for.
pub(crate) fn is_polled_for(claim: impl FnOnce() -> Claim, settings: &Settings) -> bool {
    let is_empty = POLLED_FOR.try_with(|polled| polled.borrow().is_empty());
    if is_empty.unwrap_or(true) || settings.shadow.is_some() {
        return false;
    }
    // Cloned, because the store may be the user's, and poll something.
    let polled = POLLED_FOR.try_with(|polled| polled.borrow().clone());
    let claim = claim();
    let found = polled.iter().flatten();
    let mut found = found.flat_map(|permit| of_semaphore(permit, &claim, settings));
    found.next().is_some()
}

/// The permit that a request has of the claim's semaphore, if it has one.
pub(crate) fn called_for(
    extensions: &Extensions,
    claim: impl FnOnce() -> Claim,
    settings: &Settings,
) -> Option<Result<Permit, AcquireError>> {
    let outer = extensions.get::<Permit>()?;
    let claim = claim();
    let share = share(outer, &claim, settings)?;
    Some(match share.weight_for(&claim, settings) {
        Ok(_) => Ok(whole(vec![Some(share)], &[claim], None)),
        Err(error) => Err(error),
    })
}

/// The levels of the claim's semaphore that are held, the innermost first. The semaphore's id is asked for only if a
/// level has its policy.
fn of_semaphore(permit: &Permit, claim: &Claim, settings: &Settings) -> Vec<(Permit, usize)> {
    let is_it = |level: Level<'_>| {
        let own =
            (level.policy() == claim.policy() && level.is_held()).then(|| level.semaphore_id());
        let id = || settings.semaphore.semaphore_id(claim.policy(), claim.key());
        own.flatten().is_some_and(|own| id() == Some(own))
    };
    let found = permit.each().flat_map(|permit| {
        let numbers = 0..permit.levels().len();
        let found = numbers.filter(|number| is_it(permit.level(*number)));
        let found: Vec<_> = found.map(|number| (permit.clone(), number)).collect();
        found
    });
    found.collect()
}

/// Shares the level of an outer limit's permit that is of the claim's semaphore, which is under this limit too from now
/// on. A limit on trial acquires for itself, and is only told.
///
/// `None` also if the level is shared with another inner call: a request may make several at once, of which one shares
/// the level, until its permit is dropped, and the others acquire permits of their own.
fn share(outer: &Permit, claim: &Claim, settings: &Settings) -> Option<Source> {
    let found = of_semaphore(outer, claim, settings);
    let (innermost, number) = found.first()?;
    let limit = settings.limit_of(claim);
    let outer_limit = innermost.level(*number).limit();
    settings.mistakes.nested(claim.policy(), outer_limit, limit);
    if settings.shadow.is_some() {
        return None;
    }
    let is_free = |(permit, number): &&(Permit, usize)| permit.level(*number).take();
    let (permit, number) = found.iter().find(is_free)?.clone();
    for (permit, number) in &found {
        permit.level(*number).lower(limit);
    }
    let _taken = Some(Taken(permit.clone(), number));
    Some(Source {
        permit,
        number,
        _taken,
    })
}
