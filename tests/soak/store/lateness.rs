//! How late this machine is, so that it is not taken for the library's fault.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// How long the watchdog sleeps. A timer may be a millisecond late on an idle machine.
const NAP: Duration = Duration::from_millis(5);
const GRAIN: Duration = Duration::from_millis(1);

/// The delays that were seen beside the load.
#[derive(Debug, Default)]
pub(crate) struct Lateness(Mutex<Vec<Late>>);

/// Something took longer than it should, from then to then.
#[derive(Debug, Clone, Copy)]
struct Late {
    from: Instant,
    to: Instant,
    by: Duration,
}

impl Lateness {
    /// Sleeps again and again, and records how late each sleep ended. Never ends.
    pub(crate) async fn watch(&self) {
        loop {
            let start = Instant::now();
            sleep(NAP).await;
            self.took(start, NAP + GRAIN);
        }
    }

    /// Something that should have taken so long ends now.
    pub(crate) fn took(&self, from: Instant, usual: Duration) {
        let to = Instant::now();
        let by = (to - from).saturating_sub(usual);
        if !by.is_zero() {
            self.lock().push(Late { from, to, by });
        }
    }

    /// All delays together that overlap with a span of time.
    pub(crate) fn late(&self, from: Instant, to: Instant) -> Duration {
        let seen = self.lock();
        // The sleeps are recorded in the order of their ends.
        let first = seen.partition_point(|late| late.to < from);
        let during = seen[first..].iter().filter(|late| late.from <= to);
        during.map(|late| late.by).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Late>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
