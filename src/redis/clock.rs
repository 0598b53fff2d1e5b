//! The lengths of time that callers meet.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) lease: Duration,
    pub(super) timeout: Duration,
}

/// How long connecting may take.
pub(super) const CONNECT: Duration = Duration::from_secs(1);

/// The cap of a duration that is added to an instant, so that the sum cannot overflow.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Times {
    pub(super) fn new(lease: Duration, timeout: Duration) -> Self {
        Self { lease, timeout }
    }

    /// How long calls to the server may be used for one request: a call and a second one.
    pub(super) fn budget(&self) -> Duration {
        self.timeout * 2
    }
}

/// The instant `time` from now, capped at one year to avoid overflow.
pub(super) fn after(time: Duration) -> Instant {
    at(Instant::now(), time)
}

/// The instant `time` after another one, capped likewise.
pub(super) fn at(start: Instant, time: Duration) -> Instant {
    start + time.min(YEAR)
}

#[cfg(test)]
mod tests;
