//! A limit inside of another one that counts the same request in the same semaphore.
//!
//! That is a mistake: one of the two was meant to have a policy of its own. If each acquired a permit, a
//! request would wait for itself, and the limit would be half of what it says. So the inner limit shares the
//! outer one's permit, which is held until both are done with it. It asks no store again: what was held when the
//! permit was granted says whether the inner limit would have granted it at that moment.

use crate::{
    semaphore::{Acquire, AcquireError, Claim, Claims, Permit, outer::Share},
    settings::Settings,
};
use http::Extensions;
use std::{cell::RefCell, slice, time::Duration};

thread_local! {
    /// The permits of the requests for which a service is polled now.
    static POLLED_FOR: RefCell<Vec<Permit>> = const { RefCell::new(Vec::new()) };
}

/// What is left to acquire for a request, and the levels of an outer permit that it shares.
pub(crate) struct Nested {
    claims: Claims,
    /// For each claim, in their order.
    shares: Vec<Option<Share>>,
}

impl Nested {
    /// Compares claims with the permit of the outer limits. `None`: they have nothing in common.
    pub(crate) fn of(
        claims: &Claims,
        extensions: &Extensions,
        settings: &Settings,
    ) -> Option<Self> {
        let outer = extensions.get::<Permit>()?;
        let (mut shares, mut is_nested) = (Vec::new(), false);
        for (at, claim) in claims.into_iter().enumerate() {
            let share = share(outer, claim, settings);
            is_nested |= share.is_some();
            if is_nested {
                shares.resize_with(at, || None);
                shares.push(share);
            }
        }
        is_nested.then(|| Self {
            claims: claims.clone(),
            shares,
        })
    }

    /// Acquires what is not shared.
    pub(crate) fn acquire(self, settings: &Settings) -> Acquire {
        let left = match self.claims.check().and_then(|()| self.left()) {
            Err(error) => return Acquire::ready(Err(error)),
            Ok(left) => left,
        };
        let is_one = match left.len() {
            0 => return Acquire::ready(Ok(self.hold(&[], None))),
            count => count == 1,
        };
        let acquire = settings.acquire(left.into());
        Acquire::pending(async move {
            let permit = acquire.await?;
            let levels = match is_one {
                true => slice::from_ref(&permit),
                false => permit.levels(),
            };
            Ok(self.hold(levels, Some(permit.clone())))
        })
    }

    /// The claims that share nothing, then what those that share need beside it: under their own limits, and
    /// without a wait, because the request holds units that others may wait for.
    fn left(&self) -> Result<Vec<Claim>, AcquireError> {
        let (mut left, mut more) = (Vec::new(), Vec::new());
        for (claim, share) in self.claims.as_slice().iter().zip(&self.shares) {
            match share {
                None => left.push(claim.clone()),
                Some(share) => more.extend(share.more_for(claim)?),
            }
        }
        let more = more.into_iter();
        left.extend(more.map(|claim: Claim| claim.with_wait(Duration::ZERO)));
        Ok(left)
    }

    /// The permit of all claims, in their order, and of what was acquired beside them.
    fn hold(self, acquired: &[Permit], permit: Option<Permit>) -> Permit {
        let mut acquired = acquired.iter().cloned();
        let level = |share: &Option<Share>| match share {
            Some(share) => Some(share.level.clone()),
            None => acquired.next(),
        };
        let mut permits: Vec<_> = self.shares.iter().filter_map(level).collect();
        permits.extend(acquired);
        Permit::sharing(permits, (self.shares, permit))
    }
}

/// Polls a service for a request that is admitted with this permit. One that acquires in `poll_ready` would
/// wait for that permit for ever if the two are of one semaphore.
pub(crate) fn poll_for<T>(permit: Option<&Permit>, poll: impl FnOnce() -> T) -> T {
    /// Also if `poll` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            let permit = POLLED_FOR.try_with(|polled| polled.borrow_mut().pop());
            drop(permit);
        }
    }
    let Some(permit) = permit else {
        return poll();
    };
    let is_known = POLLED_FOR.try_with(|polled| polled.borrow_mut().push(permit.clone()));
    let _end = is_known.is_ok().then_some(End);
    poll()
}

/// Whether a request for which a service is polled holds units of the claim's semaphore. The call shows whether
/// it is the request that is called for.
pub(crate) fn is_polled_for(claim: impl FnOnce() -> Claim, settings: &Settings) -> bool {
    let polled = POLLED_FOR.try_with(|polled| polled.borrow().clone());
    let polled = polled.unwrap_or_default();
    if polled.is_empty() || settings.shadow.is_some() {
        return false;
    }
    let claim = claim();
    let id = || settings.semaphore.semaphore_id(claim.policy(), claim.key());
    let mut polled = polled.iter();
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
    let more = share.more_for(&claim);
    Some(more.map(|_| Permit::sharing(vec![share.level.clone()], share)))
}

/// The level of an outer limit's permit that is of the claim's semaphore. A limit on trial acquires for
/// itself, and is only told.
fn share(outer: &Permit, claim: &Claim, settings: &Settings) -> Option<Share> {
    let id = || settings.semaphore.semaphore_id(claim.policy(), claim.key());
    let found = outer.share(claim.policy(), &id)?;
    let (limit, inner) = (found.level.limit(), claim.limit().unwrap_or_default());
    settings.mistakes.nested(claim.policy(), limit, inner);
    settings.shadow.is_none().then_some(found)
}
