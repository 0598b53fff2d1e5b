//! The interface of `meter.rs` without the feature `metrics`. Calls compile to nothing.

#![allow(dead_code, reason = "without some features some calls do not exist")]

use super::{
    events::{Origin, WaitSpan},
    outcome::{Answered, LostBy, Outcome, Store},
};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

#[derive(Clone, Default)]
pub(crate) struct Meter(Origin);

impl Meter {
    #[inline]
    pub(crate) fn of(store: Store, policy: &str) -> Self {
        Self(Origin::of(store, policy))
    }

    #[inline]
    pub(crate) fn of_what(&self) -> Option<(Store, &str)> {
        self.0.get()
    }

    #[inline]
    pub(crate) fn lost(&self, _: LostBy) {}

    #[inline]
    pub(crate) fn degraded(&self) {}
}

pub(crate) struct Claiming(());

impl Claiming {
    #[inline]
    pub(crate) fn begin(_: Store, _: &str) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn granted(&mut self) {}

    #[inline]
    pub(crate) fn refused(&mut self, _: Option<impl AsRef<str>>, _: Outcome) {}
}

#[inline]
pub(crate) fn refused(_: Store, _: impl AsRef<str>, _: Outcome) {}

#[derive(Default)]
pub(crate) struct Waiting(WaitSpan);

impl Waiting {
    #[inline]
    pub(crate) fn join(&mut self, meter: &Meter, key: impl FnOnce() -> String) {
        if let Some((store, policy)) = meter.of_what()
            && !self.0.is_of(store, policy)
        {
            self.0.end(Outcome::Admitted);
            self.0 = WaitSpan::begin(store, policy, key);
        }
    }

    #[inline]
    pub(crate) fn leave(&mut self, outcome: Outcome) {
        self.0.end(outcome);
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        self.0.end(Outcome::Cancelled);
    }
}

#[derive(Default)]
pub(crate) struct Held {
    store: Option<Store>,
    has_ended: AtomicBool,
}

impl Held {
    #[inline]
    pub(crate) fn of(store: Store) -> Self {
        Self {
            store: Some(store),
            has_ended: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn begin(&self, _: &str) {}

    #[inline]
    pub(crate) fn store(&self) -> Option<Store> {
        self.store
    }

    #[inline]
    pub(crate) fn under(&mut self, _: &str) {}

    #[inline]
    pub(crate) fn end(&self) -> bool {
        self.store.is_some() && !self.has_ended.swap(true, Relaxed)
    }

    #[inline]
    pub(crate) fn claimed(&self, _: impl FnOnce() -> Outcome) {}

    #[inline]
    pub(crate) fn lost(&self, _: LostBy) {}
}

#[inline]
pub(crate) fn shadowed(_: &str, _: impl FnOnce() -> Outcome) {}

pub(crate) struct Requesting(());

impl Requesting {
    #[inline]
    pub(crate) fn begin(_: &str) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn without_claim(_: &str) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn end(self, _: impl FnOnce() -> Outcome) {}

    #[inline]
    pub(crate) fn refused(self, _: &str, _: impl FnOnce() -> Outcome) {}
}

#[inline]
pub(crate) fn called(
    _: Store,
    _: &'static str,
    _: Duration,
    _: impl Iterator<Item = (usize, Answered)>,
) {
}
