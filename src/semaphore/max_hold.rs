//! Bounds how long a permit is held, also beyond the end of the runtime that granted it.

use super::background;
use std::{
    sync::Weak,
    time::{Duration, Instant},
};
use tokio::{task::AbortHandle, time::sleep};

/// A countdown to the end of a permit. Dropping it cancels the countdown.
pub(super) struct MaxHold(AbortHandle);

impl MaxHold {
    /// Calls `end` after `max_hold` if `held` still exists then.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(super) fn start<T>(held: Weak<T>, max_hold: Duration, end: fn(&T)) -> Self
    where
        T: ?Sized + Send + Sync + 'static,
    {
        let countdown = Countdown {
            held: Some(held),
            end,
            since: Instant::now(),
            max_hold,
        };
        Self(tokio::spawn(countdown.run()).abort_handle())
    }
}

impl Drop for MaxHold {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Countdown<T: ?Sized + Send + Sync + 'static> {
    /// `None` when the countdown is over.
    held: Option<Weak<T>>,
    end: fn(&T),
    since: Instant,
    max_hold: Duration,
}

impl<T: ?Sized + Send + Sync + 'static> Countdown<T> {
    async fn run(mut self) {
        sleep(self.max_hold.saturating_sub(self.since.elapsed())).await;
        if let Some(held) = self.held.take() {
            self.end(&held);
        }
    }

    fn end(&self, held: &Weak<T>) {
        if let Some(held) = held.upgrade() {
            (self.end)(&held);
        }
    }
}

/// A runtime that ends drops its tasks. A permit that is still held then has moved to another
/// runtime, or to a thread without one, so its countdown goes on in the background. If the
/// background cannot start, the permit ends at once: an end too early is better than no bound.
impl<T: ?Sized + Send + Sync + 'static> Drop for Countdown<T> {
    fn drop(&mut self) {
        let is_held = |held: &Weak<T>| held.strong_count() > 0;
        let Some(held) = self.held.take().filter(is_held) else {
            return;
        };
        let Some(runtime) = background::runtime() else {
            return self.end(&held);
        };
        let rest = Self {
            held: Some(held),
            ..*self
        };
        runtime.spawn(rest.run());
    }
}
