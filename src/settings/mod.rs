//! Settings of a limit.

mod methods;

pub(crate) use methods::settings_methods;

use crate::{
    fields::Fields,
    reject::{Reject, default_rejection},
    semaphore::{Acquire, Claim, DEFAULT_MAX_WAITING, Policy, Semaphore},
};
use std::{sync::Arc, time::Duration};

/// What a service needs to know beside the key.
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
            max_waiting: DEFAULT_MAX_WAITING,
            semaphore: Arc::new(semaphore),
            max_hold: None,
            on_lost: OnLost::default(),
            release_at: ReleaseAt::default(),
            reject: Arc::new(default_rejection),
        }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.fields = Arc::new(Fields::new(policy.clone(), self.limit));
        self.policy = policy;
    }

    /// Acquires a permit. A claim that no store could grant does not reach the store.
    pub(crate) fn acquire(&self, claim: Claim) -> Acquire {
        match claim.units() {
            Ok(_) => self.semaphore.acquire(claim),
            Err(error) => Acquire::ready(Err(error)),
        }
    }

    /// The same claim, with the settings for what it leaves open.
    pub(crate) fn complete(&self, claim: Claim) -> Claim {
        claim.or(&self.policy, self.limit, self.wait, self.max_waiting)
    }
}

/// What becomes of a response whose permit was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnLost {
    /// It goes on, so for a while more requests than the limit are in flight.
    #[default]
    Finish,
    /// Its body ends in a [`PermitLost`](crate::PermitLost) error, which closes the connection or
    /// resets the stream.
    Abort,
}

/// When the permit of a request is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReleaseAt {
    /// When the response's body has ended.
    #[default]
    BodyEnd,
    /// When the response's head is there.
    Head,
}
