//! The end of a store: the thread that drops its last user waits a moment for releases.

use super::{shared::Shared, transport::Transport};
use std::{
    future::pending,
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, task};

/// The interval at which the waiting thread checks for the end. It registers no waker, because a thread-local
/// destructor may run this code after Tokio's own thread-locals are gone.
const CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// True if this thread may block: it runs no task (like the main thread), or its runtime is shutting down.
pub(super) fn may_block() -> bool {
    task::try_id().is_none() || Handle::try_current().is_ok_and(|runtime| is_ending(&runtime))
}

/// True if a runtime is shutting down. It then drops a spawned task at once, so the task counts as finished.
fn is_ending(runtime: &Handle) -> bool {
    let task = runtime.spawn(pending::<()>());
    let is_ending = task.is_finished();
    task.abort();
    is_ending
}

impl<T: Transport> Shared<T> {
    /// Blocks this thread until nothing is left to send, at most until the deadline.
    pub(super) fn wait_until_drained(&self, deadline: Instant) {
        while !*self.is_drained.borrow() && Instant::now() < deadline {
            thread::sleep(CHECK_INTERVAL);
        }
    }
}
