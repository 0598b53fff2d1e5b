//! When to retry after a refusal without a full limit: the store failed, or the limit is 0.

/// The first and the longest spread, in seconds.
const SPREAD: (f64, f64) = (3.0, 30.0);

/// A failure begins a new outage if the last one is this many seconds ago.
const APART: f64 = 10.0;

/// Failures in a row. Their end cannot be predicted, so clients are spread over as many seconds as
/// the outage has lasted.
#[derive(Debug, Default)]
pub(super) struct Outage {
    since: f64,
    last: Option<f64>,
    /// How many clients were told, so that the next is told another second.
    told: u64,
}

impl Outage {
    pub(super) fn next(&mut self, now: f64) -> u64 {
        if self.last.is_none_or(|last| now - last > APART) {
            self.since = now;
            self.told = 0;
        }
        self.last = Some(now);
        let spread = (now - self.since).clamp(SPREAD.0, SPREAD.1) as u64;
        let turn = self.told;
        self.told += 1;
        1 + turn % spread
    }
}
