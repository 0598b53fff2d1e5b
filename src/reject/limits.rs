//! The limits of a request.

use crate::semaphore::{AcquireError, ClaimError, Claims, Policy};
use std::iter;

/// A policy, and its limit in units.
pub(crate) type Limit = (Policy, u32);

/// The limits that a request is under. Most requests are under one, which needs no allocation.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    narrowest: Limit,
    wider: Vec<Limit>,
}

impl Limits {
    pub(crate) fn one(policy: Policy, limit: u32) -> Self {
        Self {
            narrowest: (policy, limit),
            wider: Vec::new(),
        }
    }

    /// The limits of a request's claims.
    pub(crate) fn of(claims: &Claims) -> Self {
        let mut limits = claims
            .into_iter()
            .map(|claim| (claim.policy().clone(), claim.limit().unwrap_or_default()));
        Self {
            narrowest: limits.next().unwrap_or_default(),
            wider: limits.collect(),
        }
    }

    pub(crate) fn narrowest(&self) -> &Limit {
        &self.narrowest
    }

    pub(crate) fn are_several(&self) -> bool {
        !self.wider.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Limit> {
        iter::once(&self.narrowest).chain(&self.wider)
    }

    /// The limit that an error names; the narrowest if it names none. A store of several limits of
    /// its own may name one that no claim has.
    pub(super) fn refusing(&self, error: &AcquireError) -> Limit {
        let too_heavy_for = |limit: u32| self.iter().find(|(_, other)| *other == limit);
        match error {
            AcquireError::Full { policy, limit, .. } => (policy.clone(), *limit),
            AcquireError::Invalid(ClaimError::TooHeavy { limit, .. }) => {
                too_heavy_for(*limit).unwrap_or(&self.narrowest).clone()
            }
            _ => self.narrowest.clone(),
        }
    }

    /// All but the one that refused.
    pub(super) fn others(&self, refusing: &Limit) -> impl Iterator<Item = &Limit> {
        let at = self.iter().position(|limit| limit == refusing);
        let others = self.iter().enumerate();
        others.filter_map(move |(other, limit)| (Some(other) != at).then_some(limit))
    }
}
