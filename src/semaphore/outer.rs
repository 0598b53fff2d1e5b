//! A level of an outer limit's permit, which an inner limit of the same semaphore shares.

use super::{AcquireError, Claim, Permit, Policy, SemaphoreId};
use std::sync::Arc;

/// A level, taken for one inner limit until this is dropped. A request may make several inner calls at once:
/// one of them shares the level, and the others acquire permits of their own.
pub(crate) struct Share {
    pub(crate) level: Permit,
    _taken: Arc<()>,
}

impl Permit {
    /// Takes the level of the semaphore with this id, unless it is released, or taken by another inner call.
    /// The id is asked for only if a level has its policy.
    pub(crate) fn share(
        &self,
        policy: &Policy,
        id: &dyn Fn() -> Option<SemaphoreId>,
    ) -> Option<Share> {
        let level = self.level_of(policy, id)?;
        // What an outer limit shares already is taken anew for each limit inside of that one.
        match self.parts() {
            parts if !parts.is_empty() && !self.0.is_share => {
                parts.iter().find_map(|part| part.share(policy, id))
            }
            _ => self.take().map(|_taken| Share {
                level: level.clone(),
                _taken,
            }),
        }
    }

    /// The level of the semaphore with this id, if it is held.
    pub(crate) fn level_of(
        &self,
        policy: &Policy,
        id: &dyn Fn() -> Option<SemaphoreId>,
    ) -> Option<&Self> {
        let grant = &self.0.grant;
        match grant.parts() {
            [] => {
                let is_held = self.policy() == policy && grant.weight() != Some(0);
                let own = is_held.then(|| grant.semaphore_id()).flatten()?;
                (id() == Some(own)).then_some(self)
            }
            parts => parts.iter().find_map(|part| part.level_of(policy, id)),
        }
    }

    fn take(&self) -> Option<Arc<()>> {
        let mut attached = self.0.attached.lock();
        let attached = attached.get_or_insert_default();
        let is_free = attached.taken.strong_count() == 0;
        let taken = is_free.then(Arc::default)?;
        attached.taken = Arc::downgrade(&taken);
        Some(taken)
    }
}

impl Share {
    /// What the claim needs beside the units of the level, under the lower limit and as far as that goes.
    ///
    /// # Errors
    ///
    /// Full, if more were held when the level was granted than the claim's limit allows: then the claim would
    /// have been refused at that moment. What others hold of a degraded level is not known.
    pub(crate) fn more_for(&self, claim: &Claim) -> Result<Option<Claim>, AcquireError> {
        let (level, limit) = (&self.level, claim.limit().unwrap_or_default());
        let held = level.limit().saturating_sub(level.remaining());
        let others = match level.is_degraded() {
            true => 0,
            false => held.saturating_sub(level.0.weight),
        };
        let own = level.weight().min(limit);
        if others.saturating_add(own) > limit || limit == 0 {
            return Err(AcquireError::full(claim, held));
        }
        let lower = limit.min(level.limit());
        let more = claim.weight().min(lower).saturating_sub(own);
        Ok((more > 0).then(|| claim.clone().with_limit(lower).with_weight(more)))
    }
}
