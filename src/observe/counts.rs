//! Counts claims, their waits, their permits and requests. Without the feature `metrics` a [`Meter`] is empty, and code
//! that uses it compiles to nothing.

#![cfg_attr(
    not(feature = "metrics"),
    allow(dead_code, unused_assignments, unused_variables)
)]

use super::{
    events,
    outcome::{BudgetUse, LostBy, MetricKind, Outcome, Store},
};
use std::{
    mem,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
#[cfg(feature = "redis")]
use {super::outcome::Answered, std::time::Duration};
#[cfg(feature = "metrics")]
use {
    super::recorder::{Gauge, Histogram, Instruments, instruments},
    std::sync::Arc,
    tokio::time::Instant,
};

/// The instruments of a policy or a verb, and the time since which this meter has them. By default it has none.
#[derive(Default)]
pub(crate) struct Meter(#[cfg(feature = "metrics")] Option<(Arc<Instruments>, Instant)>);

impl Meter {
    /// The instruments for the claims of a policy in a store.
    #[inline]
    pub(crate) fn for_claims(store: Store, policy: &str) -> Self {
        Self::find(MetricKind::Claims(store), policy)
    }

    #[inline]
    fn find(kind: MetricKind, name: &str) -> Self {
        #[cfg(feature = "metrics")]
        let now = Instant::now();
        Self(
            #[cfg(feature = "metrics")]
            Some((instruments(kind, name, now.into_std()), now)),
        )
    }

    /// Counts the outcome of a claim or a request.
    #[inline]
    fn outcome(&self, outcome: Outcome) {
        #[cfg(feature = "metrics")]
        self.with(|all, _| all.outcomes[outcome as usize].increment());
    }

    pub(crate) fn lost(&self, by: LostBy) {
        #[cfg(feature = "metrics")]
        self.with(|all, _| all.lost[by as usize].increment());
    }

    #[cfg(feature = "redis")]
    pub(crate) fn degraded(&self) {
        #[cfg(feature = "metrics")]
        self.with(|all, _| all.degraded.increment());
    }

    fn paused(&self) {
        #[cfg(feature = "metrics")]
        self.with(|all, _| all.pauses.increment());
    }

    /// Increments the gauge. Returns true if the recorder has counted that.
    #[inline]
    fn enter(&self, kind: PeriodKind) -> bool {
        #[cfg(feature = "metrics")]
        return self.with(|all, _| kind.instruments(all).0.increment());
        #[cfg(not(feature = "metrics"))]
        false
    }

    fn leave(&self, kind: PeriodKind) {
        #[cfg(feature = "metrics")]
        self.with(|all, _| kind.instruments(all).0.decrement());
    }

    /// Records the time since which this meter has its instruments: the duration of a permit or a wait.
    fn time(&self, kind: PeriodKind) {
        #[cfg(feature = "metrics")]
        self.with(|all, since| {
            let (_, histogram) = kind.instruments(all);
            histogram.record(since.elapsed().as_secs_f64());
        });
    }

    #[cfg(feature = "metrics")]
    fn with<T: Default>(&self, count: impl FnOnce(&Instruments, &Instant) -> T) -> T {
        let counted = self.0.as_ref().map(|(all, since)| count(all, since));
        counted.unwrap_or_default()
    }
}

/// A permit, or a wait, which ends with an outcome. A gauge counts it while it lasts, and a histogram its duration.
#[derive(Clone, Copy)]
enum PeriodKind {
    Permit,
    Wait(Outcome),
}

#[cfg(feature = "metrics")]
impl PeriodKind {
    fn instruments(self, all: &Instruments) -> (&Gauge, &Histogram) {
        match self {
            Self::Permit => (&all.active, &all.held),
            Self::Wait(outcome) => (&all.queued, &all.in_queue[outcome as usize]),
        }
    }
}

/// Counts a permit or a wait until its end, or at the latest until its drop.
struct PeriodCounter {
    meter: Meter,
    kind: PeriodKind,
    /// False if the recorder panicked, so that the gauge must not be decremented.
    is_counted: bool,
    has_ended: AtomicBool,
}

impl PeriodCounter {
    #[inline]
    fn begin(store: Store, policy: &str, kind: PeriodKind) -> Self {
        let meter = Meter::for_claims(store, policy);
        Self {
            is_counted: meter.enter(kind),
            meter,
            kind,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Counts the end. Returns true if it has not ended before.
    fn end(&self) -> bool {
        let ends = !self.has_ended.swap(true, Relaxed);
        ends.then(|| self.count_end()).is_some()
    }

    fn count_end(&self) {
        self.leave();
        self.meter.time(self.kind);
    }

    /// Decrements the gauge.
    fn leave(&self) {
        if self.is_counted {
            self.meter.leave(self.kind);
        }
    }
}

#[cfg(feature = "metrics")]
impl Drop for PeriodCounter {
    fn drop(&mut self) {
        if !*self.has_ended.get_mut() {
            self.count_end();
        }
    }
}

/// A claim or a request whose outcome is not known yet. Its drop counts it as cancelled.
pub(crate) struct OutcomeCounter {
    kind: MetricKind,
    meter: Meter,
}

impl OutcomeCounter {
    pub(crate) fn begin(store: Store, policy: &str) -> Self {
        let kind = MetricKind::Claims(store);
        let meter = Meter::find(kind, policy);
        Self { kind, meter }
    }

    pub(crate) fn request(policy: &str) -> Self {
        let kind = MetricKind::Requests;
        let meter = Meter::find(kind, policy);
        Self { kind, meter }
    }

    /// The claim was granted, so its permit counts the outcome.
    pub(crate) fn granted(&mut self) {
        self.meter = Meter::default();
    }

    /// Counts a request that is admitted, or refused by its own policy.
    pub(crate) fn ended(mut self, outcome: Outcome) {
        mem::take(&mut self.meter).outcome(outcome);
    }

    /// Counts a refusal, by the policy `by` if the refusal names one.
    pub(crate) fn refused(&mut self, by: Option<impl AsRef<str>>, outcome: Outcome) {
        let own = mem::take(&mut self.meter);
        let by = by.map(|policy| Meter::find(self.kind, policy.as_ref()));
        by.unwrap_or(own).outcome(outcome);
    }
}

impl Drop for OutcomeCounter {
    fn drop(&mut self) {
        self.meter.outcome(Outcome::Cancelled);
    }
}

/// A permit at one limit, from its grant until it ends or is dropped. By default it is not counted.
#[derive(Default)]
pub(crate) struct PermitCounter(Option<(Store, PeriodCounter)>);

impl PermitCounter {
    /// A permit that is counted from now on.
    #[inline]
    pub(crate) fn begin(store: Store, policy: &str) -> Self {
        Self(Some((
            store,
            PeriodCounter::begin(store, policy, PeriodKind::Permit),
        )))
    }

    /// Counts the release or the end of the permit. Returns its store, unless it has ended before or is not counted.
    #[inline]
    pub(crate) fn end(&self) -> Option<Store> {
        let (store, period) = self.0.as_ref()?;
        period.end().then_some(*store)
    }

    /// Counts the outcome of the permit's claim at this limit.
    #[inline]
    pub(crate) fn count_claim(&self, outcome: Outcome) {
        if let Some((_, period)) = &self.0 {
            period.meter.outcome(outcome);
        }
    }

    pub(crate) fn lost(&self, by: LostBy) {
        if let Some((_, period)) = &self.0 {
            period.meter.lost(by);
        }
    }

    /// Counts a pause of the permit's key.
    pub(crate) fn paused(&self) {
        if let Some((_, period)) = &self.0 {
            period.meter.paused();
        }
    }
}

/// A claim that may be in a queue. By default it is in none. Its drop counts the wait as cancelled.
#[derive(Default)]
pub(crate) struct WaitCounter(Option<(PeriodCounter, events::WaitSpan)>);

impl WaitCounter {
    /// The claim joins a queue. If it was in another queue before, it has been granted there.
    pub(crate) fn join(&mut self, store: Store, policy: &str, key: impl FnOnce() -> String) {
        self.leave(Outcome::Admitted);
        let period = PeriodCounter::begin(store, policy, PeriodKind::Wait(Outcome::Cancelled));
        self.0 = Some((period, events::WaitSpan::begin(store, policy, key)));
    }

    /// The claim leaves the queue.
    pub(crate) fn leave(&mut self, outcome: Outcome) {
        if let Some((mut period, span)) = self.0.take() {
            period.kind = PeriodKind::Wait(outcome);
            span.end(outcome);
        }
    }
}

impl Drop for WaitCounter {
    fn drop(&mut self) {
        self.leave(Outcome::Cancelled);
    }
}

/// Counts a request that is admitted although a policy in shadow would have refused it.
pub(crate) fn shadowed(policy: &str, outcome: Outcome) {
    Meter::find(MetricKind::Shadow, policy).outcome(outcome);
}

/// Counts units of a budget.
pub(crate) fn budget(store: Store, policy: &str, used: BudgetUse, units: u32) {
    if units > 0 {
        let meter = Meter::find(MetricKind::Budget(store), policy);
        #[cfg(feature = "metrics")]
        meter.with(|all, _| all.budget[used as usize].add(units));
    }
}

/// Counts a command to a store's server: its size in claims or permits, how long it took, and how it ended.
#[cfg(feature = "redis")]
pub(crate) fn called(store: Store, verb: &str, size: usize, took: Duration, answered: Answered) {
    let meter = Meter::find(MetricKind::Calls(store), verb);
    #[cfg(feature = "metrics")]
    meter.with(|all, _| {
        all.size.record(size as f64);
        all.calls[answered as usize].record(took.as_secs_f64());
    });
}
