//! Counts, with the feature `metrics`. Without it `silent.rs` has the same names.

pub(crate) use super::requests::{Requesting, shadowed};
use super::{
    events::WaitSpan,
    fault::contain,
    known,
    names::Claims,
    outcome::{LostBy, Outcome, Store},
};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

/// Counts what happens under a policy in a store. By default nothing.
#[derive(Clone, Default)]
pub(crate) struct Meter(Option<Arc<Claims>>);

impl Meter {
    pub(crate) fn of(store: Store, policy: &str) -> Self {
        Self(Some(known::claims(store, policy, Instant::now())))
    }

    /// A claim has this outcome.
    pub(crate) fn claimed(&self, outcome: Outcome) {
        self.with(|claims| claims.by_outcome[outcome as usize].increment(1));
    }

    pub(crate) fn lost(&self, by: LostBy) {
        contain(|| self.with(|claims| claims.lost[by as usize].increment(1)));
    }

    #[cfg(feature = "redis")]
    pub(crate) fn degraded(&self) {
        contain(|| self.with(|claims| claims.degraded.increment(1)));
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
    fn with(&self, count: impl FnOnce(&Claims)) {
        if let Some(claims) = &self.0 {
            count(claims);
        }
    }
}

/// A claim whose outcome is not known yet: cancelled, if it is dropped.
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

/// A claim that may be in a queue. By default it is in none.
#[derive(Default)]
pub(crate) struct Waiting(Option<InQueue>);

struct InQueue {
    meter: Meter,
    span: WaitSpan,
    since: Instant,
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
        meter.with(|claims| claims.queued.increment(1.0));
        let of_what = meter
            .of_what()
            .map(|(store, policy)| WaitSpan::begin(store, policy, key));
        self.0 = Some(InQueue {
            meter: meter.clone(),
            span: of_what.unwrap_or_default(),
            since: Instant::now(),
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
            claims.queued.decrement(1.0);
            let waited = self.since.elapsed();
            claims.in_queue[self.outcome as usize].record(waited);
        });
    }
}

/// A permit that is held, until it ends or is dropped. By default it is that of no limit of its own.
#[derive(Default)]
pub(crate) struct Held(Option<Holding>);

struct Holding {
    store: Store,
    meter: Meter,
    since: Instant,
    has_ended: AtomicBool,
}

impl Held {
    #[inline]
    pub(crate) fn begin(store: Store, policy: &str) -> Self {
        let since = Instant::now();
        let claims = known::claims(store, policy, since);
        claims.active.increment(1.0);
        Self(Some(Holding {
            store,
            meter: Meter(Some(claims)),
            since,
            has_ended: AtomicBool::new(false),
        }))
    }

    /// A permit that was just made is of another policy.
    pub(crate) fn under(&mut self, policy: &str) {
        if let Some(holding) = &mut self.0 {
            holding.meter.with(|claims| claims.active.decrement(1.0));
            holding.meter = Meter::of(holding.store, policy);
            holding.meter.with(|claims| claims.active.increment(1.0));
        }
    }

    /// The permit is released or ended. `false`: it was before, or is that of no limit of its own.
    pub(crate) fn end(&self) -> bool {
        self.0.as_ref().is_some_and(Holding::end)
    }

    pub(crate) fn claimed(&self, outcome: impl FnOnce() -> Outcome) {
        if let Some(holding) = &self.0 {
            holding.meter.claimed(outcome());
        }
    }

    pub(crate) fn lost(&self, by: LostBy) {
        self.0.iter().for_each(|holding| holding.meter.lost(by));
    }

    /// `None`: the permit is that of no limit of its own.
    pub(crate) fn store(&self) -> Option<Store> {
        self.0.as_ref().map(|holding| holding.store)
    }
}

impl Holding {
    fn end(&self) -> bool {
        let ends = !self.has_ended.swap(true, Relaxed);
        if ends {
            let count = |claims: &Claims| {
                claims.active.decrement(1.0);
                claims.held.record(self.since.elapsed());
            };
            contain(|| self.meter.with(count));
        }
        ends
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.end();
    }
}
