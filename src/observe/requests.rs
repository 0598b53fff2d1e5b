//! Counts requests.

use super::{known, names::Requests, outcome::Outcome};
use std::{sync::Arc, time::Instant};

/// A request whose outcome is not known yet: cancelled, if it is dropped.
pub(crate) struct Requesting(Option<Arc<Requests>>);

impl Requesting {
    /// Its claim, which is counted too, looks at the time.
    pub(crate) fn begin(policy: &str) -> Self {
        Self(Some(known::requests(policy, None)))
    }

    /// A request that makes no claim.
    pub(crate) fn without_claim(policy: &str) -> Self {
        Self(Some(known::requests(policy, Some(Instant::now()))))
    }

    /// The request has this outcome.
    pub(crate) fn end(mut self, outcome: impl FnOnce() -> Outcome) {
        if let Some(requests) = self.0.take() {
            requests.by_outcome[outcome() as usize].increment(1);
        }
    }

    /// The request is refused by this policy.
    pub(crate) fn refused(mut self, by: &str, outcome: impl FnOnce() -> Outcome) {
        self.0 = None;
        Self::begin(by).end(outcome);
    }
}

/// A policy in shadow would have refused a request that is admitted.
pub(crate) fn shadowed(policy: &str, outcome: impl FnOnce() -> Outcome) {
    known::shadow(policy, outcome()).increment(1);
}

impl Drop for Requesting {
    fn drop(&mut self) {
        if let Some(requests) = &self.0 {
            requests.by_outcome[Outcome::Cancelled as usize].increment(1);
        }
    }
}
