//! A limit inside of another one that counts the same request in the same semaphore.
//!
//! That is a mistake: one of the two was meant to have a policy of its own. If each acquired a permit, a
//! request would wait for itself, and the limit would be half of what it says. So the inner limit shares the
//! outer one's permit, which is held until both are done with it, under the lower limit and with the larger
//! weight. What was held when the permit was granted says whether the inner limit would have granted it at that
//! moment; the store is asked again only for a larger weight.

use crate::{
    semaphore::{Acquire, AcquireError, Claim, Claims, Permit},
    settings::Settings,
};
use http::Extensions;
use std::{
    cell::RefCell,
    slice,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

thread_local! {
    /// The permits of the requests for which a service is polled now.
    static POLLED_FOR: RefCell<Vec<Permit>> = const { RefCell::new(Vec::new()) };
}

/// Whether a service of this process acquires in `poll_ready`, before there is a request whose extensions have
/// the outer permit. Most processes have none, and their requests need not say for whom they poll.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Acquires what a request claims. What the permit of an outer limit has of it is shared.
#[inline]
pub(crate) fn acquire(claims: Claims, extensions: &Extensions, settings: &Settings) -> Acquire {
    let Some(outer) = extensions.get::<Permit>() else {
        return settings.acquire(claims);
    };
    let mut shares = Vec::new();
    for (at, claim) in claims.as_slice().iter().enumerate() {
        shares.extend(share(outer, claim, settings).map(|share| (at, share)));
    }
    match shares.is_empty() {
        true => settings.acquire(claims),
        false => beside(shares, &claims, settings),
    }
}

/// What a request shares, and the places of these claims among all.
type Shares = Vec<(usize, Permit)>;

/// Acquires what is not shared. Then the shares grow, without a wait, because the request holds units that
/// others may wait for.
#[cold]
fn beside(shares: Shares, claims: &Claims, settings: &Settings) -> Acquire {
    let (left, weights) = match claims.check().and_then(|()| parted(&shares, claims)) {
        Err(error) => return Acquire::ready(Err(error)),
        Ok(parted) => parted,
    };
    let is_one = left.len() == 1;
    let acquire = (!left.is_empty()).then(|| settings.acquire(left.into()));
    Acquire::pending(async move {
        let acquired = match acquire {
            Some(acquire) => Some(acquire.await?),
            None => None,
        };
        for ((_, share), weight) in shares.iter().zip(weights) {
            share.grow_to(weight).await?;
        }
        whole(shares, acquired, is_one)
    })
}

/// The claims that share nothing, and the weight of each share.
fn parted(shares: &Shares, claims: &Claims) -> Result<(Vec<Claim>, Vec<u32>), AcquireError> {
    let (mut left, mut weights) = (Vec::new(), Vec::new());
    for (at, claim) in claims.into_iter().enumerate() {
        match shares.iter().find(|(place, _)| *place == at) {
            None => left.push(claim.clone()),
            Some((_, share)) => weights.push(share.weight_for(claim)?),
        }
    }
    Ok((left, weights))
}

/// The permit of all claims, in their order.
fn whole(shares: Shares, acquired: Option<Permit>, is_one: bool) -> Result<Permit, AcquireError> {
    let Some(acquired) = acquired else {
        return Permit::join(shares.into_iter().map(|(_, share)| share).collect());
    };
    let mut levels = match is_one {
        true => slice::from_ref(&acquired).to_vec(),
        false => acquired.levels().to_vec(),
    };
    for (at, share) in shares {
        levels.insert(at.min(levels.len()), share);
    }
    Ok(Permit::keeping(levels, acquired))
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
    let id = || settings.semaphore.semaphore_id(claim.policy(), claim.key());
    let mut polled = polled.iter().flatten();
    polled.any(|permit| permit.level_of(claim.policy(), &id).is_some())
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
    Some(share.weight_for(&claim).map(|_| share))
}

/// Shares the level of an outer limit's permit that is of the claim's semaphore. A limit on trial acquires for
/// itself, and is only told.
fn share(outer: &Permit, claim: &Claim, settings: &Settings) -> Option<Permit> {
    let id = || settings.semaphore.semaphore_id(claim.policy(), claim.key());
    let limit = claim.limit().unwrap_or_default();
    let level = outer.level_of(claim.policy(), &id)?;
    settings
        .mistakes
        .nested(claim.policy(), level.limit(), limit);
    match settings.shadow {
        Some(_) => None,
        None => outer.share(claim.policy(), &id, limit),
    }
}
