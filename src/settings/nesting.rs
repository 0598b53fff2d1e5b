//! Finds two nested limits that count a request in one semaphore: the inner one would count it twice, or wait for the
//! request's own permit.
//!
//! The ids of semaphores travel with permits and refusals, so this compares those of the inner answer with those of the
//! outer permits, and asks no store.

use super::Mistakes;
use crate::semaphore::{AcquireError, ClaimError, Few, Level, Permit, Policy, SemaphoreId};
use std::sync::Arc;

/// A limit, and the semaphore in which it counts a request.
pub(super) struct Counted {
    semaphore: SemaphoreId,
    pub(super) policy: Policy,
    pub(super) limit: u32,
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
        let (semaphore, policy, limit) = error.refusing()?;
        Some(Self {
            semaphore,
            policy: policy.clone(),
            limit,
            is_shadow: false,
        })
    }
}

/// The limits that a request is under already.
pub(crate) struct Nesting {
    outer: Few<Counted>,
    mistakes: Arc<Mistakes>,
}

impl Nesting {
    pub(super) fn new(outer: &Permit, mistakes: &Arc<Mistakes>) -> Self {
        Self {
            outer: outer.all_levels().filter_map(Counted::by_level).collect(),
            mistakes: Arc::clone(mistakes),
        }
    }

    pub(super) fn has(&self, policy: &Policy) -> bool {
        self.outer.iter().any(|outer| outer.policy == *policy)
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
                self.mistakes.nested(outer, &inner);
                if outer.is_shadow || inner.is_shadow {
                    return answer;
                }
                Err(ClaimError::Nested.into())
            }
            None => answer,
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
