//! What would have become of a request that was admitted.

use crate::{
    observe::{Outcome, events, shadowed},
    semaphore::{AcquireError, Policy},
};

/// A request that was admitted would have been refused.
pub(super) fn refused(policy: &Policy, error: &AcquireError) {
    let policy = match error {
        AcquireError::Full { policy, .. } => policy,
        _ => policy,
    };
    report(policy, error.outcome());
}

/// The only function that tells of a trial.
pub(super) fn report(policy: &Policy, outcome: Outcome) {
    shadowed(policy.as_str(), outcome);
    events::shadowed(policy.as_str(), outcome);
}
