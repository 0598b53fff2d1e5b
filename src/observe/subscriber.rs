//! The subscriber of the crate `tracing`. No other file names that crate, so no call bypasses the
//! boundary.

use super::{
    boundary::{Foreign, contain},
    outcome::Outcome,
};
use tracing::{Level, Span, debug, enabled, field::Empty, info_span};

/// The target of all events and spans of this crate.
pub(super) const TARGET: &str = "tower_semaphore";

/// Emits an event. Takes its level, fields and message like `tracing::event!`.
macro_rules! tell {
    ($level:ident, $($event:tt)+) => {{
        use $crate::observe::{boundary::contain, subscriber::TARGET};
        contain(|| ::tracing::event!(target: TARGET, ::tracing::Level::$level, $($event)+));
    }};
}
pub(super) use tell;

/// Whether a subscriber records keys.
#[inline]
pub(super) fn is_debug() -> bool {
    contain(|| enabled!(target: TARGET, Level::DEBUG)).unwrap_or_default()
}

/// The span of a claim in a queue.
pub(super) struct Wait(Foreign<Span>);

impl Wait {
    pub(super) fn begin(store: &str, policy: &str) -> Self {
        let span = || info_span!(target: TARGET, "wait", store, policy, outcome = Empty);
        Self(Foreign::new(span))
    }

    pub(super) fn waits(&self, key: &str) {
        self.0
            .with(|span| debug!(target: TARGET, parent: span, key, "a claim waits"));
    }

    pub(super) fn end(&self, outcome: Outcome) {
        self.0.with(|span| {
            span.record("outcome", outcome.as_str());
        });
    }
}
