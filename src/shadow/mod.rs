//! A limit on trial: every request is admitted, and its claims run beside it to find out how they would have ended.
//!
//! A granted claim holds its units for as long as it would in force. If it waited, its hold begins and ends later than
//! its request, by the time of the wait.

mod trial;

use crate::{
    nesting::Nesting,
    observe::Outcome,
    semaphore::{Acquire, Claim, Claims, Permit, Policy, Semaphore},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::runtime::Handle;
use trial::{ShadowGrant, Trial, TrialClaim, report};

/// How many claims of a layer may be under way beside their requests. Further claims count as `overloaded`.
const MAX_RUNNING: usize = 50_000;

/// The claims that are under way beside their requests.
#[derive(Default)]
pub(crate) struct Shadow {
    running: AtomicUsize,
}

impl Shadow {
    /// Admits a request, and starts its claims beside it. `nesting` has the outer limits.
    pub(crate) fn admit(
        self: &Arc<Self>,
        claims: Claims,
        semaphore: &dyn Semaphore,
        max_hold: Option<Duration>,
        nesting: Option<Nesting>,
    ) -> Permit {
        let claims = claims.map(Claim::on_trial);
        let wanted = claims.clone();
        let narrowest = &wanted.as_slice()[0];
        let answer = match claims.check_with_budgets() {
            Ok(()) => semaphore.acquire_all(claims).answer(),
            Err(error) => Ok(Err(error)),
        };
        let policy = narrowest.policy();
        let trial = Trial::new(
            policy.clone(),
            narrowest.checked_units().weight,
            max_hold,
            nesting,
        );
        let trial = Arc::new(trial);
        let grant = match answer {
            Ok(answer) => {
                trial.answered(answer);
                ShadowGrant::new(trial, None)
            }
            Err(acquire) => {
                let (claim, ended) = TrialClaim::begin(Arc::clone(&trial));
                self.spawn(claim, acquire, policy);
                ShadowGrant::new(trial, Some(ended))
            }
        };
        Permit::in_shadow(grant, wanted.as_slice())
    }

    /// Admits a request whose key is wrong.
    pub(crate) fn admit_invalid(policy: Policy, limit: u32) -> Permit {
        report(&policy, Outcome::Invalid);
        let trial = Trial::new(policy.clone(), 1, None, None);
        let claim = Claim::new("").with_policy(policy).with_limit(limit);
        Permit::in_shadow(ShadowGrant::new(Arc::new(trial), None), &[claim])
    }

    /// Runs a claim beside its request. Drops the claim if too many run already, or outside of a Tokio runtime.
    fn spawn(self: &Arc<Self>, claim: TrialClaim, acquire: Acquire, policy: &Policy) {
        let running = RunningClaim::begin(self);
        match Handle::try_current() {
            _ if self.running.load(Relaxed) > MAX_RUNNING => report(policy, Outcome::Overloaded),
            Err(_) => report(policy, Outcome::Unavailable),
            Ok(runtime) => {
                runtime.spawn(async move {
                    claim.run(acquire).await;
                    drop(running);
                });
            }
        }
    }
}

/// Counts one claim that is under way, until its drop.
struct RunningClaim(Arc<Shadow>);

impl RunningClaim {
    fn begin(shadow: &Arc<Shadow>) -> Self {
        shadow.running.fetch_add(1, Relaxed);
        Self(Arc::clone(shadow))
    }
}

impl Drop for RunningClaim {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}
