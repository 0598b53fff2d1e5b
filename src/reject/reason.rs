//! Why a request is not admitted, and the limits that it is under.

use crate::{
    key::KeyError,
    observe::Outcome,
    retry::{RefusedTerms, Retry},
    semaphore::{AcquireError, ClaimError, Claims, Few, Permit, PermitLost, Policy},
};
use std::time::Duration;

/// Why a request is not admitted, or why it ends before its response.
/// [`Rejection::reason`](crate::Rejection::reason) returns it.
///
/// # Examples
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_semaphore::{AcquireError, Reason, Rejection};
///
/// fn reject(rejection: Rejection) -> Response<String> {
///     let full = matches!(rejection.reason(), Reason::Acquire { error: AcquireError::Full { .. }, .. });
///     let mut response = rejection.into_response();
///     if full {
///         *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
///     }
///     response
/// }
/// # drop(reject);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason {
    /// The semaphore granted no permit.
    #[non_exhaustive]
    Acquire {
        /// The reason of the store.
        error: AcquireError,
    },
    /// The permit of a [`GlobalConcurrencyLimit`](crate::GlobalConcurrencyLimit) was lost between
    /// readiness and call.
    #[non_exhaustive]
    Lost {
        /// The loss.
        error: PermitLost,
    },
    /// The permit was lost before the inner service returned the response's head, under
    /// [`OnLost::Abort`](crate::OnLost::Abort). The inner service's future is dropped. The handler may have had
    /// effects, so only idempotent requests can safely be retried.
    #[non_exhaustive]
    Aborted {
        /// The loss.
        error: PermitLost,
    },
    /// The extractor found no key in the request, or a wrong one.
    #[non_exhaustive]
    Key {
        /// The mistake in the request.
        error: KeyError,
    },
}

impl Reason {
    /// A permit that was lost.
    pub(crate) fn lost() -> Self {
        Self::Lost { error: PermitLost }
    }

    /// The reason of a request that ends with its permit.
    pub(crate) fn aborted() -> Self {
        Self::Aborted { error: PermitLost }
    }

    /// The outcome that metrics count.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Acquire { error } => error.outcome(),
            Self::Lost { .. } | Self::Aborted { .. } => Outcome::Lost,
            Self::Key { .. } => Outcome::Invalid,
        }
    }

    /// How many units are left for a new claim, if that is known. A queue leaves none: a new claim has
    /// to join it.
    pub(super) fn remaining(&self) -> Option<u32> {
        match self {
            Self::Acquire { error } => match error {
                AcquireError::Full { limit, held, .. } => Some(limit.saturating_sub(*held)),
                error => error.is_refusal().then_some(0),
            },
            _ => None,
        }
    }

    /// When to try again, in seconds; `None` if that would not help. Called once for each rejection, because it takes a
    /// slot of the schedule.
    pub(super) fn retry_after(&self, refusing: &RequestLimit, retry: &Retry) -> Option<u64> {
        match self {
            Self::Key { .. } => None,
            Self::Acquire { error } if error.retry_after().is_none() => None,
            Self::Acquire {
                error:
                    error @ (AcquireError::Paused { .. }
                    | AcquireError::Full {
                        retry_after: Some(_),
                        ..
                    }),
            } => error.retry_after().map(|rest| rest.as_secs()),
            Self::Acquire { error } if error.is_refusal() => {
                let (policy, key) = (&refusing.policy, refusing.key);
                let terms = RefusedTerms {
                    limit: refusing.limit,
                    weight: refusing.weight,
                    share: refusing.share,
                };
                Some(retry.refused(policy, key, terms))
            }
            Self::Acquire { .. } | Self::Lost { .. } | Self::Aborted { .. } => Some(retry.failed()),
        }
    }
}

/// One limit of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLimit {
    pub(crate) policy: Policy,
    /// In units.
    pub(crate) limit: u32,
    pub(crate) weight: u32,
    /// The window of a budget.
    pub(crate) window: Option<Duration>,
    /// A hash of the key, and of the flow if the claim has one.
    pub(crate) key: u64,
    /// The share of the flow; 0 without a flow.
    pub(crate) share: u32,
}

/// The limits that a request is under, the narrowest first.
#[derive(Debug, Clone)]
pub(crate) struct RequestLimits(Few<RequestLimit>);

impl RequestLimit {
    fn matches(&self, policy: &Policy, limit: u32) -> bool {
        self.limit == limit && self.policy == *policy
    }
}

impl RequestLimits {
    pub(crate) fn one(policy: Policy, limit: u32, window: Option<Duration>) -> Self {
        Self(Few::One([RequestLimit {
            policy,
            limit,
            weight: 1,
            window,
            ..RequestLimit::default()
        }]))
    }

    /// The limits of a request's claims.
    pub(crate) fn for_claims(claims: &Claims, retry: &Retry) -> Self {
        let limits = claims.as_slice().iter().map(|claim| RequestLimit {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            weight: claim.checked_units().weight,
            window: claim.window(),
            key: retry.key(claim),
            share: claim.flow().map_or(0, |_| claim.share()),
        });
        Self(limits.collect())
    }

    /// The limits under which a permit was granted, which operators may have set.
    pub(crate) fn granted(mut self, permit: &Permit) -> Self {
        for (limit, level) in self.0.iter_mut().zip(permit.levels()) {
            limit.limit = level.limit();
        }
        self
    }

    pub(crate) fn narrowest(&self) -> &RequestLimit {
        &self.0[0]
    }

    pub(super) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RequestLimit> {
        self.0.iter()
    }

    /// The limit that an error names, with its value in force. The narrowest limit if the error names none. A custom
    /// store that adds limits may name a limit that no claim has.
    pub(super) fn refusing(&mut self, error: &AcquireError) -> RequestLimit {
        let too_heavy_for = |limit: u32| self.iter().find(|other| other.limit == limit);
        if let (Some(policy), Some(limit)) = (error.policy(), error.limit()) {
            return self.named(policy, limit);
        }
        match error {
            AcquireError::Invalid {
                source: ClaimError::TooHeavy { limit, .. },
            } => too_heavy_for(*limit).unwrap_or(self.narrowest()).clone(),
            _ => self.narrowest().clone(),
        }
    }

    /// Finds the request's limit of this policy, and sets its value to `limit`, because an operator may have changed
    /// it. If several limits have the policy, a limit of the same value comes first.
    fn named(&mut self, policy: &Policy, limit: u32) -> RequestLimit {
        let is_same = |known: &RequestLimit| known.matches(policy, limit);
        let has_policy = |known: &RequestLimit| known.policy == *policy;
        let same = self.0.iter().position(is_same);
        match same.or_else(|| self.0.iter().position(has_policy)) {
            Some(at) => {
                self.0[at].limit = limit;
                self.0[at].clone()
            }
            None => RequestLimit {
                policy: policy.clone(),
                limit,
                window: None,
                ..self.narrowest().clone()
            },
        }
    }

    /// All limits except the limit that refused.
    pub(super) fn others(&self, refusing: &RequestLimit) -> impl Iterator<Item = &RequestLimit> {
        let at = self
            .iter()
            .position(|limit| limit.matches(&refusing.policy, refusing.limit));
        let others = self.iter().enumerate();
        others.filter_map(move |(other, limit)| (Some(other) != at).then_some(limit))
    }
}
