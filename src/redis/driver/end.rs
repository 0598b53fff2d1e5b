//! The end of a store: the thread that drops its last user waits a moment for releases.

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

/// True if this thread may block: it runs no task (like the main thread), or its runtime is shutting down.
pub(super) fn may_block() -> bool {
    task::try_id().is_none() || Handle::try_current().is_ok_and(|runtime| is_ending(&runtime))
}

/// True if a runtime is shutting down: then it drops a spawned task at once.
fn is_ending(runtime: &Handle) -> bool {
    let task = runtime.spawn(pending::<()>());
    let is_ending = task.is_finished();
    task.abort();
    is_ending
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T: Transport> Shared<T> {
    /// Blocks this thread until nothing is left to send, but not beyond the deadline.
    pub(super) fn wait_until_drained(&self, deadline: Instant) {
        let mut is_drained = self.is_drained.subscribe();
        let mut drained = pin!(unconstrained(is_drained.wait_for(|is_drained| *is_drained)));
        let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
        let mut context = Context::from_waker(&waker);
        while drained.as_mut().poll(&mut context).is_pending() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}
