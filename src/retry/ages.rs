//! The ages of the permits that are held now.

use std::time::Duration;

/// The timed permits of a key that are held. Times count from the creation of the layer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ages {
    count: u32,
    /// The sum of the times of their grants.
    granted: Duration,
    /// The time of the last grant or end.
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

    /// A lower bound of every age. One old permit among new ones says nothing about the others.
    pub(super) fn least(&self, now: Duration) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            _ => now.saturating_sub(self.changed),
        }
    }
}
