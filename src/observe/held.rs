//! Counts permits, with the feature `metrics`.

use super::{
    counts::Meter,
    known,
    outcome::{LostBy, Outcome, Store},
};
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use tokio::time::Instant;

/// A permit that is held, from `begin` until it ends or is dropped. By default it is that of no limit of its own.
#[derive(Default)]
pub(crate) struct Held {
    store: Option<Store>,
    holding: OnceLock<Holding>,
}

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
    pub(crate) fn of(store: Store) -> Self {
        Self {
            store: Some(store),
            holding: OnceLock::new(),
        }
    }

    #[inline]
    pub(crate) fn begin(&self, policy: &str) {
        if let Some(store) = self.store {
            // It is counted once.
            let _ = self.holding.set(Holding::begin(store, policy));
        }
    }

    /// Moves a new permit to another policy.
    pub(crate) fn under(&mut self, policy: &str) {
        if let Some(holding) = self.holding.get_mut() {
            holding.leave();
            holding.meter = Meter::of(holding.store, policy);
            holding.is_counted = holding.meter.with(|claims| claims.active.increment());
        }
    }

    /// The permit is released or ended. `false`: it was before, or is not counted.
    pub(crate) fn end(&self) -> bool {
        self.holding.get().is_some_and(Holding::end)
    }

    pub(crate) fn claimed(&self, outcome: impl FnOnce() -> Outcome) {
        if let Some(holding) = self.holding.get() {
            holding.meter.claimed(outcome());
        }
    }

    pub(crate) fn lost(&self, by: LostBy) {
        self.holding
            .get()
            .into_iter()
            .for_each(|holding| holding.meter.lost(by));
    }

    /// `None`: the permit counts under no limit.
    pub(crate) fn store(&self) -> Option<Store> {
        self.store
    }
}

impl Holding {
    #[inline]
    fn begin(store: Store, policy: &str) -> Self {
        let since = Instant::now();
        let claims = known::claims(store, policy, since.into_std());
        Self {
            store,
            is_counted: claims.active.increment(),
            meter: Meter(Some(claims)),
            since,
            has_ended: AtomicBool::new(false),
        }
    }

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
