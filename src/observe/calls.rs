//! Counts calls to a store's server.

use super::outcome::{Answered, Store};
#[cfg(feature = "metrics")]
use super::{fault::contain, known};
use std::time::Instant;

/// Commands were sent together at `sent`. Each has so many claims or permits, and was answered so.
#[cfg(feature = "metrics")]
pub(crate) fn called(
    store: Store,
    verb: &'static str,
    sent: Instant,
    commands: impl Iterator<Item = (usize, Answered)>,
) {
    contain(|| {
        let now = Instant::now();
        let calls = known::calls(store, verb, now);
        for (size, answered) in commands {
            calls.size.record(size as f64);
            calls.duration[answered as usize].record(now - sent);
        }
    });
}

#[cfg(not(feature = "metrics"))]
#[inline]
pub(crate) fn called(
    _: Store,
    _: &'static str,
    _: Instant,
    _: impl Iterator<Item = (usize, Answered)>,
) {
}
