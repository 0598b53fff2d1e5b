//! Counts permits, with the feature `metrics`.

use super::{
    counts::Meter,
    known,
    outcome::{LostBy, Outcome, Store},
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::time::Instant;

/// A permit, held until it ends or is dropped. By default it counts under no limit.
#[derive(Default)]
pub(crate) struct Held(Option<Holding>);

struct Holding {
    store: Store,
    meter: Meter,
    /// Whether the gauge counts it.
    is_counted: bool,
    since: Instant,
    has_ended: AtomicBool,
}

impl Held {
    #[inline]
    pub(crate) fn begin(store: Store, policy: &str) -> Self {
        let since = Instant::now();
        let claims = known::claims(store, policy, since.into_std());
        Self(Some(Holding {
            store,
            is_counted: claims.active.increment(),
            meter: Meter(Some(claims)),
            since,
            has_ended: AtomicBool::new(false),
        }))
    }

    /// Moves a new permit to another policy.
    pub(crate) fn under(&mut self, policy: &str) {
        if let Some(holding) = &mut self.0 {
            holding.leave();
            holding.meter = Meter::of(holding.store, policy);
            holding.is_counted = holding.meter.with(|claims| claims.active.increment());
        }
    }

    /// The permit is released or ended. `false`: it already was, or it counts under no limit.
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

    /// `None`: the permit counts under no limit.
    pub(crate) fn store(&self) -> Option<Store> {
        self.0.as_ref().map(|holding| holding.store)
    }
}

impl Holding {
    fn end(&self) -> bool {
        let ends = !self.has_ended.swap(true, Relaxed);
        if ends {
            self.leave();
            let held = self.since.elapsed();
            self.meter.with(|claims| claims.held.seconds(held));
        }
        ends
    }

    fn leave(&self) {
        if self.is_counted {
            self.meter.with(|claims| claims.active.decrement());
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.end();
    }
}
