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

/// A countdown to the end of an object. Dropping it cancels the countdown.
pub(crate) struct Countdown(AbortHandle);

impl Countdown {
    /// Starts a countdown that ends `object` when it has no time left. It checks `object` after `first` for the first
    /// time.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(crate) fn start<T: Bounded + ?Sized>(object: Weak<T>, first: Duration) -> Self {
        let counting = Counting {
            object: Some(object),
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

/// The task of a countdown.
struct Counting<T: Bounded + ?Sized> {
    /// `None` once the countdown is over.
    object: Option<Weak<T>>,
    /// The time that was left at `since`.
    left: Duration,
    since: Instant,
}

impl<T: Bounded + ?Sized> Counting<T> {
    async fn run(mut self) {
        while self.object.is_some() {
            sleep(self.left.saturating_sub(self.since.elapsed())).await;
            self.check();
        }
    }

    /// Ends the object if it has no time left. Stops counting if the object is gone.
    fn check(&mut self) {
        let object = self.object.as_ref().and_then(Weak::upgrade);
        let left = object
            .as_ref()
            .map_or(Duration::ZERO, |object| object.left());
        if !left.is_zero() {
            (self.since, self.left) = (Instant::now(), left);
            return;
        }
        self.object = None;
        if let Some(object) = object {
            object.end();
        }
    }
}

/// A runtime that ends drops its tasks. If the object still exists then, it has moved to another runtime, or to a
/// thread without one, so its countdown continues in the background runtime. If that cannot start, the object ends at
/// once: an end too early is better than no bound.
impl<T: Bounded + ?Sized> Drop for Counting<T> {
    fn drop(&mut self) {
        let is_alive = |object: &Weak<T>| object.strong_count() > 0;
        let Some(object) = self.object.take().filter(is_alive) else {
            return;
        };
        let Some(runtime) = runtime() else {
            object.upgrade().inspect(|object| object.end());
            return;
        };
        let rest = Self {
            object: Some(object),
            ..*self
        };
        runtime.spawn(rest.run());
    }
}
