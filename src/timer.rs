//! Timers that keep working when they move to another runtime, and pauses after failed attempts.

#![allow(dead_code, reason = "only a store in Redis goes by the real clock")]

use pin_project_lite::pin_project;
use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::{Pin, pin},
    sync::LazyLock,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Handle, Id},
    task::unconstrained,
    time::{self, Sleep},
};

/// Longer than any wait, and short enough to be added to an instant.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// A time by Tokio's clock, which tests may pause, or by the real one.
#[derive(Debug, Clone, Copy)]
enum Deadline {
    Tokio(time::Instant),
    Real(Instant),
}

pin_project! {
    /// A future that is ready at a time. A Tokio timer belongs to the runtime that made it, and panics once that
    /// runtime has ended. So each runtime that polls this future gets a new Tokio timer.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Timer {
        at: Deadline,
        runtime: Option<Id>,
        #[pin]
        sleep: Option<Sleep>,
    }
}

pin_project! {
    /// A future that returns the output of another one, or `Elapsed` if the time ends first.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        timer: Timer,
    }
}

/// The time of a `Timeout` has ended before its future was ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elapsed {
    /// True if the time was set by the real clock and has not come yet, because Tokio's clock is paused.
    pub(crate) is_early: bool,
}

/// Returns a future that is ready at this time by the real clock. It may be ready too early if Tokio's clock is paused.
pub(crate) fn sleep_until(at: Instant) -> Timer {
    Timer::new(Deadline::Real(at))
}

/// Returns a future that is ready after this time by Tokio's clock.
pub(crate) fn sleep(time: Duration) -> Timer {
    let now = time::Instant::now();
    let at = now.checked_add(time).unwrap_or(now + FOREVER);
    Timer::new(Deadline::Tokio(at))
}

pub(crate) fn timeout_at<F: Future>(at: Instant, future: F) -> Timeout<F> {
    let timer = sleep_until(at);
    Timeout { future, timer }
}

pub(crate) fn timeout<F: Future>(time: Duration, future: F) -> Timeout<F> {
    let timer = sleep(time);
    Timeout { future, timer }
}

impl Deadline {
    /// The time by Tokio's clock, which is ahead of the real clock if it was paused.
    fn by_tokio(self) -> time::Instant {
        match self {
            Self::Tokio(at) => at,
            Self::Real(at) => {
                let left = at.saturating_duration_since(Instant::now());
                time::Instant::now() + left
            }
        }
    }

    /// True for a time by the real clock that has not come yet.
    fn is_to_come(self) -> bool {
        matches!(self, Self::Real(at) if Instant::now() < at)
    }
}

impl Timer {
    fn new(at: Deadline) -> Self {
        Self {
            at,
            runtime: None,
            sleep: None,
        }
    }
}

impl Future for Timer {
    type Output = ();

    /// # Panics
    ///
    /// In a runtime without time enabled. Outside of any runtime, if no runtime has polled the timer before, or the
    /// last one to do so has ended.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        let has_moved = here.is_some() && here != *this.runtime;
        if this.sleep.is_none() || has_moved {
            *this.runtime = here;
            this.sleep.set(Some(time::sleep_until(this.at.by_tokio())));
        }
        match this.sleep.as_pin_mut() {
            // Unconstrained, because the future that the timer bounds may have used up the budget of its task.
            Some(sleep) => pin!(unconstrained(sleep)).poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let at = this.timer.at;
        this.timer.poll(cx).map(|()| {
            let is_early = at.is_to_come();
            Err(Elapsed { is_early })
        })
    }
}

/// Returns the nanoseconds since the first call by Tokio's clock. The result is negative if the first caller's runtime
/// had a clock that was paused and then advanced. Outside of a runtime this is the system's monotonic clock.
pub(crate) fn nanos() -> i64 {
    static START: LazyLock<time::Instant> = LazyLock::new(time::Instant::now);
    let (now, start) = (time::Instant::now(), *START);
    let after = now.saturating_duration_since(start);
    let before = start.saturating_duration_since(now);
    after.as_nanos() as i64 - before.as_nanos() as i64
}

/// The pauses after attempts that fail in a row. They grow with the duration of the row, so that the end of a short
/// outage is noticed soon, and a long outage costs little. They are random, so that processes do not try in step.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    row: Option<FailureRow>,
}

/// When the first and the last attempt in a row failed, by any clock.
#[derive(Debug, Clone, Copy)]
struct FailureRow {
    first: Duration,
    last: Duration,
}

impl Backoff {
    /// The upper bound of the first pauses.
    pub(crate) const FIRST: Duration = Duration::from_millis(100);

    /// The longest pause.
    pub(crate) const LONGEST: Duration = Duration::from_secs(2);

    /// Failures that are further apart do not belong to one row.
    const CALM: Duration = Duration::from_secs(5);

    /// The time between the first and the last failure of this row.
    pub(crate) fn duration(&self) -> Duration {
        self.row.map_or(Duration::ZERO, |row| row.last - row.first)
    }

    /// Notes a failure. Returns the pause before the next attempt: between an eighth and a quarter of the row's
    /// duration, within the bounds.
    pub(crate) fn fail(&mut self, now: Duration) -> Duration {
        let in_row = |row: &FailureRow| now.saturating_sub(row.last) <= Self::CALM;
        let first = self.row.filter(in_row).map_or(now, |row| row.first);
        self.row = Some(FailureRow { first, last: now });
        let grown = now.saturating_sub(first) / 4;
        shorten_randomly(grown.clamp(Self::FIRST, Self::LONGEST))
    }
}

/// Shortens a pause at random, by a half at most.
fn shorten_randomly(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    pause.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::Backoff;
    use std::{collections::BTreeSet, time::Duration};

    /// The pauses of attempts that fail at once, up to a time.
    fn pauses(backoff: &mut Backoff, start: Duration, until: Duration) -> Vec<Duration> {
        let (mut now, mut pauses) = (start, Vec::new());
        while now < until {
            pauses.push(backoff.fail(now));
            now += pauses[pauses.len() - 1];
        }
        pauses
    }

    #[test]
    fn pauses_grow_to_the_longest_vary_and_start_over_after_a_calm() {
        let (start, mut backoff) = (Duration::from_secs(1_000), Backoff::default());
        // For 400 ms a quarter of the row is below the first bound; after 8 s it is above the longest pause.
        let first = pauses(&mut backoff, start, start + Duration::from_millis(400));
        assert!(first.len() >= 4, "{first:?}");
        assert!(first.iter().all(|pause| *pause <= Backoff::FIRST));
        let at_10_s = start + Duration::from_secs(10);
        pauses(&mut backoff, start + Duration::from_millis(400), at_10_s);
        let late = pauses(&mut backoff, at_10_s, at_10_s + Duration::from_secs(100));
        let is_long = |pause: &Duration| (Backoff::LONGEST / 2..=Backoff::LONGEST).contains(pause);
        assert!(late.iter().all(is_long), "{late:?}");
        assert!(late.iter().collect::<BTreeSet<_>>().len() > late.len() / 2);
        let after_a_calm = at_10_s + Duration::from_secs(200);
        assert!(backoff.fail(after_a_calm) <= Backoff::FIRST);
    }
}
