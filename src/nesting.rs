//! Finds two nested limits that count a request in one semaphore: the inner one would count it twice, or wait for the
//! request's own permit.
//!
//! This module compares the semaphore ids of permits and refusals. A claim contains the ids of the outer limits, so
//! that the store refuses the claim before it waits.

use crate::{
    observe::events,
    semaphore::{AcquireError, ClaimError, Claims, Few, Level, Permit, Policy, SemaphoreId},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// A limit, and the semaphore in which it counts a request.
struct CountedLimit {
    semaphore: SemaphoreId,
    policy: Policy,
    limit: u32,
    /// True for a limit in shadow, which may not harm a request.
    is_shadow: bool,
}

impl CountedLimit {
    fn from_level(level: Level<'_>) -> Option<Self> {
        Some(Self {
            semaphore: level.semaphore().filter(|_| level.is_held())?,
            policy: level.policy().clone(),
            limit: level.limit(),
            is_shadow: level.is_shadow(),
        })
    }

    fn from_refusal(error: &AcquireError) -> Option<Self> {
        Some(Self {
            semaphore: error.semaphore()?,
            policy: error.policy()?.clone(),
            limit: error.limit()?,
            is_shadow: false,
        })
    }
}

/// The limits that a request is under already.
pub(crate) struct Nesting {
    outer: Few<CountedLimit>,
    /// True once the mistake was logged.
    is_logged: Arc<AtomicBool>,
}

impl Nesting {
    pub(crate) fn new(outer: &Permit, is_logged: &Arc<AtomicBool>) -> Self {
        Self {
            outer: outer
                .all_levels()
                .filter_map(CountedLimit::from_level)
                .collect(),
            is_logged: Arc::clone(is_logged),
        }
    }

    /// Adds the semaphores of the outer limits to the claims, so that none waits for the request's own permit. Outer
    /// limits in shadow are left out, because no claim may be refused because of them.
    pub(crate) fn mark(&self, claims: Claims) -> Claims {
        let counting = self.outer.iter().filter(|outer| !outer.is_shadow);
        let semaphores: Arc<[_]> = counting.map(|outer| outer.semaphore).collect();
        claims.map(|claim| claim.within(&semaphores))
    }

    /// Returns the answer of an inner limit's store. If one of the two limits is in shadow, the mistake is only logged.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Nested`] if an outer limit counts in the semaphore of the answer. A permit is then released.
    pub(crate) fn judge(
        &self,
        answer: Result<Permit, AcquireError>,
    ) -> Result<Permit, AcquireError> {
        let found = match &answer {
            Ok(permit) => self.find(permit.all_levels().filter_map(CountedLimit::from_level)),
            Err(error) => self.find(CountedLimit::from_refusal(error)),
        };
        match found {
            Some((outer, inner)) => {
                self.log(outer, &inner);
                if outer.is_shadow || inner.is_shadow {
                    return answer;
                }
                Err(ClaimError::Nested.into())
            }
            None => answer,
        }
    }

    /// Logs once that a limit outside counts in the same semaphore.
    fn log(&self, outer: &CountedLimit, inner: &CountedLimit) {
        if !self.is_logged.swap(true, Relaxed) {
            let (outer_policy, outer_limit) = (outer.policy.as_str(), outer.limit);
            events::nested(
                inner.policy.as_str(),
                inner.limit,
                outer_policy,
                outer_limit,
            );
        }
    }

    fn find(
        &self,
        inner: impl IntoIterator<Item = CountedLimit>,
    ) -> Option<(&CountedLimit, CountedLimit)> {
        inner.into_iter().find_map(|inner| {
            let mut outer = self.outer.iter();
            let outer = outer.find(|outer| outer.semaphore == inner.semaphore)?;
            Some((outer, inner))
        })
    }
}
