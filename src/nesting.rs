//! Finds two nested limits that count a request in one semaphore: the inner one would count it twice, or wait for the
//! request's own permit.
//!
//! Permits and refusals contain the ids of their semaphores, and this module compares them. A claim contains those of the
//! limits outside, so that its store can refuse it before it waits.

use crate::{
    observe::events,
    semaphore::{AcquireError, ClaimError, Claims, Few, Level, Permit, Policy, SemaphoreId},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// A limit, and the semaphore in which it counts a request.
struct Counted {
    semaphore: SemaphoreId,
    policy: Policy,
    limit: u32,
    /// True for a limit in shadow, which may not harm a request.
    is_shadow: bool,
}

impl Counted {
    fn by_level(level: Level<'_>) -> Option<Self> {
        Some(Self {
            semaphore: level.semaphore().filter(|_| level.is_held())?,
            policy: level.policy().clone(),
            limit: level.limit(),
            is_shadow: level.is_shadow(),
        })
    }

    fn by_refusal(error: &AcquireError) -> Option<Self> {
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
    outer: Few<Counted>,
    /// True once the mistake was logged.
    is_logged: Arc<AtomicBool>,
}

impl Nesting {
    pub(crate) fn new(outer: &Permit, is_logged: &Arc<AtomicBool>) -> Self {
        Self {
            outer: outer.all_levels().filter_map(Counted::by_level).collect(),
            is_logged: Arc::clone(is_logged),
        }
    }

    /// The claims of the request, which contain the semaphores of the limits outside, so that none of them waits for the
    /// request's own permit. A limit in shadow refuses no claim.
    pub(crate) fn mark(&self, claims: Claims) -> Claims {
        let counting = self.outer.iter().filter(|outer| !outer.is_shadow);
        let semaphores: Arc<[_]> = counting.map(|outer| outer.semaphore).collect();
        claims.map(|claim| claim.within(&semaphores))
    }

    /// The answer of an inner limit's store. If one of the two limits is in shadow, the mistake is only logged.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Nested`] if an outer limit counts in the semaphore of the answer. A permit is then released.
    pub(crate) fn judge(
        &self,
        answer: Result<Permit, AcquireError>,
    ) -> Result<Permit, AcquireError> {
        let found = match &answer {
            Ok(permit) => self.find(permit.all_levels().filter_map(Counted::by_level)),
            Err(error) => self.find(Counted::by_refusal(error)),
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
    fn log(&self, outer: &Counted, inner: &Counted) {
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

    fn find(&self, inner: impl IntoIterator<Item = Counted>) -> Option<(&Counted, Counted)> {
        inner.into_iter().find_map(|inner| {
            let mut outer = self.outer.iter();
            let outer = outer.find(|outer| outer.semaphore == inner.semaphore)?;
            Some((outer, inner))
        })
    }
}
