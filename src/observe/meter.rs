//! Counts, with the feature `metrics`. Without it `silent.rs` has the same names.

pub(crate) use super::held::Held;
#[cfg(feature = "redis")]
use super::outcome::Answered;
use super::{
    events::WaitSpan,
    known,
    names::{Claims, Requests},
    outcome::{LostBy, Outcome, Store},
};
#[cfg(feature = "redis")]
use std::time::Duration;
use std::{mem, sync::Arc, time::Instant};

/// Counts the events of a policy in a store. By default none.
#[derive(Clone, Default)]
pub(crate) struct Meter(pub(super) Option<Arc<Claims>>);

impl Meter {
    pub(crate) fn of(store: Store, policy: &str) -> Self {
        Self(Some(known::claims(store, policy, Instant::now())))
    }

    /// A claim has this outcome.
    pub(crate) fn claimed(&self, outcome: Outcome) {
        self.with(|claims| claims.by_outcome[outcome as usize].increment());
    }

    pub(crate) fn lost(&self, by: LostBy) {
        self.with(|claims| claims.lost[by as usize].increment());
    }

    #[cfg(feature = "redis")]
    pub(crate) fn degraded(&self) {
        self.with(|claims| claims.degraded.increment());
    }

    /// The store and the policy.
    pub(crate) fn of_what(&self) -> Option<(Store, &str)> {
        let claims = self.0.as_deref()?;
        Some((claims.store, &claims.policy))
    }

    fn is(&self, other: &Self) -> bool {
        let pointer = |meter: &Self| meter.0.as_ref().map(Arc::as_ptr);
        pointer(self) == pointer(other)
    }

    #[inline]
    pub(super) fn with<T: Default>(&self, count: impl FnOnce(&Claims) -> T) -> T {
        self.0.as_deref().map(count).unwrap_or_default()
    }
}

/// A claim whose outcome is not known yet. Its drop counts it as cancelled.
pub(crate) struct Claiming {
    store: Store,
    meter: Meter,
}

impl Claiming {
    pub(crate) fn begin(store: Store, policy: &str) -> Self {
        let meter = Meter::of(store, policy);
        Self { store, meter }
    }

    /// The claim was granted; its permit counts it.
    pub(crate) fn granted(&mut self) {
        self.meter = Meter::default();
    }

    /// The claim was refused, by that policy if the refusal names one.
    pub(crate) fn refused(&mut self, by: Option<impl AsRef<str>>, outcome: Outcome) {
        let own = mem::take(&mut self.meter);
        match by {
            Some(policy) => refused(self.store, policy, outcome),
            None => own.claimed(outcome),
        }
    }
}

/// A claim was refused at once.
pub(crate) fn refused(store: Store, by: impl AsRef<str>, outcome: Outcome) {
    Meter::of(store, by.as_ref()).claimed(outcome);
}

impl Drop for Claiming {
    fn drop(&mut self) {
        self.meter.claimed(Outcome::Cancelled);
    }
}

/// A claim that may be in a queue. By default in none.
#[derive(Default)]
pub(crate) struct Waiting(Option<InQueue>);

struct InQueue {
    meter: Meter,
    /// Whether the gauge counts it.
    is_counted: bool,
    span: WaitSpan,
    since: tokio::time::Instant,
    outcome: Outcome,
}

impl Waiting {
    /// The claim joins a queue, or is still in that one. What it waited for before is granted.
    pub(crate) fn join(&mut self, meter: &Meter, key: impl FnOnce() -> String) {
        let is_it = |queued: &InQueue| queued.meter.is(meter);
        if self.0.as_ref().is_some_and(is_it) {
            return;
        }
        self.leave(Outcome::Admitted);
        let is_counted = meter.with(|claims| claims.queued.increment());
        let of_what = meter
            .of_what()
            .map(|(store, policy)| WaitSpan::begin(store, policy, key));
        self.0 = Some(InQueue {
            meter: meter.clone(),
            is_counted,
            span: of_what.unwrap_or_default(),
            since: tokio::time::Instant::now(),
            outcome: Outcome::Cancelled,
        });
    }

    /// The claim leaves the queue.
    pub(crate) fn leave(&mut self, outcome: Outcome) {
        if let Some(mut queued) = self.0.take() {
            queued.outcome = outcome;
        }
    }
}

impl Drop for InQueue {
    fn drop(&mut self) {
        self.span.end(self.outcome);
        self.meter.with(|claims| {
            if self.is_counted {
                claims.queued.decrement();
            }
            let waited = self.since.elapsed();
            claims.in_queue[self.outcome as usize].seconds(waited);
        });
    }
}

/// A request whose outcome is not known yet. Its drop counts it as cancelled.
pub(crate) struct Requesting(Option<Arc<Requests>>);

impl Requesting {
    /// Its claim, which is counted too, reads the time.
    pub(crate) fn begin(policy: &str) -> Self {
        Self(Some(known::requests(policy, None)))
    }

    /// A request that makes no claim.
    pub(crate) fn without_claim(policy: &str) -> Self {
        Self(Some(known::requests(policy, Some(Instant::now()))))
    }

    /// The request has this outcome.
    pub(crate) fn end(mut self, outcome: impl FnOnce() -> Outcome) {
        self.count(outcome);
    }

    /// The request is refused by this policy.
    pub(crate) fn refused(mut self, by: &str, outcome: impl FnOnce() -> Outcome) {
        self.0 = None;
        Self::begin(by).end(outcome);
    }

    fn count(&mut self, outcome: impl FnOnce() -> Outcome) {
        if let Some(requests) = self.0.take() {
            requests.by_outcome[outcome() as usize].increment();
        }
    }
}

impl Drop for Requesting {
    fn drop(&mut self) {
        self.count(|| Outcome::Cancelled);
    }
}

/// A policy in shadow would have refused a request that is admitted.
pub(crate) fn shadowed(policy: &str, outcome: impl FnOnce() -> Outcome) {
    known::shadow(policy, outcome()).increment();
}

/// Commands were sent together: their duration, the size of each in claims or permits, and its
/// outcome.
#[cfg(feature = "redis")]
pub(crate) fn called(
    store: Store,
    verb: &'static str,
    took: Duration,
    commands: impl Iterator<Item = (usize, Answered)>,
) {
    let calls = known::calls(store, verb, Instant::now());
    for (size, answered) in commands {
        calls.size.number(size);
        calls.duration[answered as usize].seconds(took);
    }
}
