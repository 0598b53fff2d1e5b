//! How old the permits are that are held now.

use std::time::Duration;

/// The timed permits of a key that are held. Times are since the layer was made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ages {
    count: u32,
    /// The sum of the times at which they were granted.
    granted: Duration,
    /// When the last one was granted, or ended.
    changed: Duration,
}

impl Ages {
    pub(super) fn begin(&mut self, at: Duration) {
        self.count += 1;
        self.granted += at;
        self.changed = at;
    }

    pub(super) fn end(&mut self, since: Duration, at: Duration) {
        self.count -= 1;
        self.granted -= since;
        self.changed = at;
    }

    pub(super) fn mean(&self, now: Duration) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => now.saturating_sub(self.granted / count),
        }
    }

    /// Each is at least so old. A single old one among new ones says nothing of the others.
    pub(super) fn least(&self, now: Duration) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            _ => now.saturating_sub(self.changed),
        }
    }
}
