//! The limits of a request.

use crate::{
    retry::Retry,
    semaphore::{AcquireError, ClaimError, Claims, Policy},
};
use std::iter;

/// One limit of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limit {
    pub(crate) policy: Policy,
    /// In units.
    pub(crate) limit: u32,
    pub(crate) weight: u32,
    /// A hash of the key.
    pub(crate) key: u64,
}

/// The limits that a request is under. Most requests are under one, which needs no allocation.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    narrowest: Limit,
    wider: Vec<Limit>,
}

impl Limit {
    fn is(&self, policy: &Policy, limit: u32) -> bool {
        self.limit == limit && self.policy == *policy
    }
}

impl Limits {
    pub(crate) fn one(policy: Policy, limit: u32) -> Self {
        Self {
            narrowest: Limit {
                policy,
                limit,
                weight: 1,
                key: 0,
            },
            wider: Vec::new(),
        }
    }

    /// The limits of a request's claims.
    pub(crate) fn of(claims: &Claims, retry: &Retry) -> Self {
        let mut limits = claims.into_iter().map(|claim| Limit {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            weight: claim.weight(),
            key: retry.key(claim.key()),
        });
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Limit> {
        iter::once(&self.narrowest).chain(&self.wider)
    }

    /// The limit that an error names; the narrowest if it names none. A store of several limits of
    /// its own may name one that no claim has.
    pub(super) fn refusing(&self, error: &AcquireError) -> Limit {
        let too_heavy_for = |limit: u32| self.iter().find(|other| other.limit == limit);
        match error {
            AcquireError::Full { policy, limit, .. } => self.named(policy, *limit),
            AcquireError::Invalid {
                source: ClaimError::TooHeavy { limit, .. },
            } => too_heavy_for(*limit).unwrap_or(&self.narrowest).clone(),
            _ => self.narrowest.clone(),
        }
    }

    fn named(&self, policy: &Policy, limit: u32) -> Limit {
        let known = self.iter().find(|known| known.is(policy, limit));
        Limit {
            policy: policy.clone(),
            limit,
            ..known.unwrap_or(&self.narrowest).clone()
        }
    }

    /// All but the one that refused.
    pub(super) fn others(&self, refusing: &Limit) -> impl Iterator<Item = &Limit> {
        let at = self
            .iter()
            .position(|limit| limit.is(&refusing.policy, refusing.limit));
        let others = self.iter().enumerate();
        others.filter_map(move |(other, limit)| (Some(other) != at).then_some(limit))
    }
}
