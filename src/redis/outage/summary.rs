//! What the breakers of all servers say together.

use super::phase::Phase;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};
use tokio::sync::watch;

/// How exactly it is known when the server has worked, in microseconds.
const RESOLUTION: u64 = 1_000;

/// Shared by all breakers of a store.
#[derive(Default)]
pub(super) struct Summary {
    /// How many breakers are in another phase than `Well`.
    unwell: AtomicUsize,
    /// How many [alerts](super::alert) are not idle.
    alerts: AtomicUsize,
    /// Whether any breaker has ever kept leases.
    any_kept: AtomicBool,
    /// When the last call was sent that was answered, microseconds since the store's creation; up to a
    /// [`RESOLUTION`] too early.
    worked: AtomicU64,
    /// When a claim has last tried while a breaker was open.
    tried: AtomicU64,
    /// How often a breaker was not well any more.
    pub(super) alarms: watch::Sender<u64>,
    /// How often a server has answered again.
    pub(super) returns: watch::Sender<u64>,
    /// How often a breaker has opened.
    pub(super) opens: watch::Sender<u64>,
}

impl Summary {
    /// Whether all is well on all servers.
    #[inline]
    pub(super) fn is_well(&self) -> bool {
        self.unwell.load(Ordering::Relaxed) == 0
    }

    /// Whether an answer to a claim is news.
    #[inline]
    pub(super) fn is_alerted(&self) -> bool {
        self.alerts.load(Ordering::Relaxed) != 0
    }

    /// An alert changes.
    pub(super) fn alert(&self, was_idle: bool, is_idle: bool) {
        match (was_idle, is_idle) {
            (true, false) => self.alerts.fetch_add(1, Ordering::Relaxed),
            (false, true) => self.alerts.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    #[inline]
    pub(super) fn has_kept(&self) -> bool {
        self.any_kept.load(Ordering::Relaxed)
    }

    pub(super) fn kept(&self) {
        self.any_kept.store(true, Ordering::Relaxed);
    }

    /// The only server has answered a call that was sent then. Threads that call at the same time mostly
    /// only read.
    #[inline]
    pub(super) fn worked(&self, sent: u64) {
        if sent >= self.worked.load(Ordering::Relaxed) + RESOLUTION {
            self.worked.fetch_max(sent, Ordering::Relaxed);
        }
    }

    /// Whether the only server has answered a call that was sent since.
    pub(super) fn has_worked_since(&self, then: u64) -> bool {
        self.worked.load(Ordering::Relaxed) > then
    }

    /// Whether no claim has tried for so long. From now on one does.
    pub(super) fn may_try(&self, now: u64, between: Duration) -> bool {
        let is_due = |tried: u64| (now >= tried + between.as_micros() as u64).then_some(now);
        let order = Ordering::Relaxed;
        self.tried.fetch_update(order, order, is_due).is_ok()
    }

    /// A breaker is about to be not well any more. Whoever sees that sees the alarm, and whoever is
    /// notified of the alarm sees that.
    pub(super) fn alarm(&self, change: impl FnOnce()) {
        self.alarms.send_if_modified(|alarms| {
            *alarms += 1;
            false
        });
        change();
        self.alarms.send_modify(|_| {});
    }

    /// A server has answered again.
    pub(super) fn returned(&self) {
        self.returns.send_modify(|returns| *returns += 1);
    }

    /// A breaker goes from one phase to another.
    pub(super) fn change(&self, from: Phase, to: Phase) {
        match (from, to) {
            (Phase::Well, Phase::Well) => 0,
            (Phase::Well, _) => self.unwell.fetch_add(1, Ordering::Relaxed),
            (_, Phase::Well) => self.unwell.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}
