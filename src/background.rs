//! Work that outlives the runtime in which it began: a background runtime of the process, and countdowns.

use parking_lot::Mutex;
use std::{
    future::pending,
    sync::{Weak, mpsc},
    thread,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle},
    task::AbortHandle,
    time::{Instant, sleep},
};

static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);

/// Returns the background runtime, which has time enabled. The first call starts its thread, which lasts as long as the
/// process. Returns `None` if the system cannot start it.
pub(crate) fn runtime() -> Option<Handle> {
    let mut runtime = RUNTIME.lock();
    if runtime.is_none() {
        *runtime = start();
    }
    runtime.clone()
}

/// The thread makes the runtime. If the caller made it and then could not start a thread, it would have to drop the
/// runtime, which panics in an asynchronous context.
fn start() -> Option<Handle> {
    let (sender, started) = mpsc::channel();
    let run = move || {
        if let Ok(runtime) = Builder::new_current_thread().enable_time().build() {
            // Cannot fail: `start` waits for the handle.
            let _ = sender.send(runtime.handle().clone());
            runtime.block_on(pending::<()>());
        }
    };
    let thread = thread::Builder::new().name("tower-semaphore".to_owned());
    thread.spawn(run).ok()?;
    started.recv().ok()
}

/// An object that a countdown ends, unless the countdown is dropped first.
pub(crate) trait Bounded: Send + Sync + 'static {
    /// Returns how long the object may still last; zero ends it now. Called when the time that the previous call
    /// returned has passed.
    fn left(&self) -> Duration;

    fn end(&self);
}

/// A countdown to the end of something. Dropping it cancels the countdown.
pub(crate) struct Countdown(AbortHandle);

impl Countdown {
    /// Starts a countdown that ends `held` when it has no time left. It checks `held` after `first` for the first time.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(crate) fn start<T: Bounded + ?Sized>(held: Weak<T>, first: Duration) -> Self {
        let counting = Counting {
            held: Some(held),
            since: Instant::now(),
            left: first,
        };
        Self(tokio::spawn(counting.run()).abort_handle())
    }
}

impl Drop for Countdown {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Counting<T: Bounded + ?Sized> {
    /// `None` once the countdown is over.
    held: Option<Weak<T>>,
    since: Instant,
    left: Duration,
}

impl<T: Bounded + ?Sized> Counting<T> {
    async fn run(mut self) {
        while self.held.is_some() {
            sleep(self.left.saturating_sub(self.since.elapsed())).await;
            self.look();
        }
    }

    fn look(&mut self) {
        let held = self.held.as_ref().and_then(Weak::upgrade);
        let left = held.as_ref().map_or(Duration::ZERO, |held| held.left());
        if !left.is_zero() {
            (self.since, self.left) = (Instant::now(), left);
            return;
        }
        self.held = None;
        if let Some(held) = held {
            held.end();
        }
    }
}

/// A runtime that ends drops its tasks. If the object still exists then, it has moved to another runtime, or to a
/// thread without one, so its countdown continues in the background runtime. If that cannot start, the object ends at
/// once: an end too early is better than no bound.
impl<T: Bounded + ?Sized> Drop for Counting<T> {
    fn drop(&mut self) {
        let is_held = |held: &Weak<T>| held.strong_count() > 0;
        let Some(held) = self.held.take().filter(is_held) else {
            return;
        };
        let Some(runtime) = runtime() else {
            held.upgrade().inspect(|held| held.end());
            return;
        };
        let rest = Self {
            held: Some(held),
            ..*self
        };
        runtime.spawn(rest.run());
    }
}
