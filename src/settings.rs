//! Settings of the limit.

use crate::{
    fields::Fields,
    reject::{Reject, Rejection},
    semaphore::{Acquire, Claim, DEFAULT_LINE, Policy, Semaphore},
};
use std::{sync::Arc, time::Duration};

/// What a service needs to know beside the extractor.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limit: u32,
    pub(crate) policy: Policy,
    pub(crate) fields: Arc<Fields>,
    pub(crate) wait: Duration,
    pub(crate) max_waiting: usize,
    pub(crate) semaphore: Arc<dyn Semaphore>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) release_at: ReleaseAt,
    pub(crate) reject: Arc<Reject>,
}

impl Settings {
    pub(crate) fn new(limit: u32, semaphore: impl Semaphore) -> Self {
        Self {
            limit,
            policy: Policy::DEFAULT,
            fields: Arc::new(Fields::new(Policy::DEFAULT, limit)),
            wait: Duration::ZERO,
            max_waiting: DEFAULT_LINE,
            semaphore: Arc::new(semaphore),
            max_hold: None,
            on_lost: OnLost::default(),
            release_at: ReleaseAt::default(),
            reject: Arc::new(Rejection::into_response),
        }
    }

    pub(crate) fn name(&mut self, policy: Policy) {
        self.fields = Arc::new(Fields::new(policy.clone(), self.limit));
        self.policy = policy;
    }

    /// Asks the store, unless the claim is one that no store could grant.
    pub(crate) fn acquire(&self, claim: Claim) -> Acquire {
        match claim.units() {
            Ok(_) => self.semaphore.acquire(claim),
            Err(error) => Acquire::ready(Err(error)),
        }
    }

    /// The same claim, with what it left open filled in.
    pub(crate) fn complete(&self, claim: Claim) -> Claim {
        claim.or(&self.policy, self.limit, self.wait, self.max_waiting)
    }
}

/// What becomes of a response whose permit was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// It goes on, so that for a while more than the limit are in flight.
    #[default]
    Finish,
    /// Its body ends in a [`PermitLost`](crate::PermitLost) error, which closes the connection or
    /// resets the stream.
    Abort,
}

/// When the permit of a request is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleaseAt {
    /// When the response's body has ended.
    #[default]
    BodyEnd,
    /// When the response's head is there.
    Head,
}
