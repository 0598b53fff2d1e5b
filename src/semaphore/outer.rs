//! A level of an outer limit's permit, which an inner limit of the same semaphore shares.

use super::{AcquireError, Claim, Permit, Policy, SemaphoreId};
use std::sync::{Arc, atomic::Ordering::Relaxed};

impl Permit {
    /// Shares the level of the semaphore with this id, which is under this limit too from now on. `None` if it is
    /// released, or shared with another inner call: a request may make several at once, of which one shares
    /// the level, until its permit is dropped, and the others acquire permits of their own.
    ///
    /// The id is asked for only if a level has its policy.
    pub(crate) fn share(
        &self,
        policy: &Policy,
        id: &dyn Fn() -> Option<SemaphoreId>,
        limit: u32,
    ) -> Option<Self> {
        match self.parts() {
            // What an outer limit shares already is shared anew by each limit inside of that one.
            parts if !parts.is_empty() && !self.0.is_share => {
                let mut parts = parts.iter();
                let share = parts.find_map(|part| part.share(policy, id, limit));
                self.0.is_shared.fetch_or(share.is_some(), Relaxed);
                share
            }
            _ => {
                let level = self.level_of(policy, id)?.clone();
                let taken = self.take()?;
                level.0.inner_limit.fetch_min(limit, Relaxed);
                level.0.is_shared.store(true, Relaxed);
                self.0.is_shared.store(true, Relaxed);
                // What it was taken from is shared itself, for as long.
                let mut share = Self::keeping(vec![level], (taken, self.clone()));
                let shared = Arc::get_mut(&mut share.0)?;
                (shared.is_share, shared.is_shared) = (true, true.into());
                Some(share)
            }
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

    /// Whether a level of it is shared by an outer and an inner limit.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.0.is_shared.load(Relaxed)
    }

    /// The limit of a permit that is shared.
    #[cold]
    pub(super) fn shared_limit(&self) -> u32 {
        match self.0.is_share {
            true => self.levels()[0].limit(),
            false => self.0.limit.min(self.0.inner_limit.load(Relaxed)),
        }
    }

    /// The weight of a share that a claim needs: as much as fits under the lower limit.
    ///
    /// # Errors
    ///
    /// Full, if more were held when the level was granted than the claim's limit allows: then the claim would
    /// have been refused at that moment. What others hold of a degraded level is not known, and it does not grow.
    pub(crate) fn weight_for(&self, claim: &Claim) -> Result<u32, AcquireError> {
        let (level, limit) = (&self.levels()[0], claim.limit().unwrap_or_default());
        let held = level.0.limit.saturating_sub(level.0.remaining);
        let (others, wanted) = match level.is_degraded() {
            true => (0, 0),
            false => (held.saturating_sub(level.0.weight), claim.weight()),
        };
        let own = level.weight().min(limit);
        match others.saturating_add(own) > limit || limit == 0 {
            true => Err(AcquireError::full(claim, held)),
            false => Ok(wanted.min(level.limit())),
        }
    }
}
