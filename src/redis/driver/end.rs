//! The end of a store: a thread waits a moment for what is released.

use super::{shared::Shared, transport::Transport};
use std::{
    future::pending,
    pin::pin,
    sync::Arc,
    task::{Context, Wake, Waker},
    thread::{self, Thread},
    time::Instant,
};
use tokio::{
    runtime::Handle,
    task::{self, unconstrained},
};

/// True if this thread may wait: it runs no task, as the main thread does, or its runtime is ending.
pub(super) fn holds_up_nobody() -> bool {
    task::try_id().is_none() || Handle::try_current().is_ok_and(|runtime| is_ending(&runtime))
}

/// A runtime that is ending drops a task at once.
fn is_ending(runtime: &Handle) -> bool {
    let task = runtime.spawn(pending::<()>());
    let is_ending = task.is_finished();
    task.abort();
    is_ending
}

/// Wakes a thread.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T: Transport> Shared<T> {
    /// Lets this thread wait until nothing is left, at most until then.
    pub(super) fn wait_until_drained(&self, until: Instant) {
        let mut is_drained = self.is_drained.subscribe();
        let mut drained = pin!(unconstrained(is_drained.wait_for(|is_drained| *is_drained)));
        let waker = Waker::from(Arc::new(Sleeper(thread::current())));
        let mut context = Context::from_waker(&waker);
        while drained.as_mut().poll(&mut context).is_pending() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}
