//! A thread with a runtime of its own.

use crate::semaphore::BoxFuture;
use parking_lot::Mutex;
use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};
use tokio::runtime::{self, Runtime};

/// A future that runs on a thread of its own, once it is started.
pub(super) struct Thread {
    started: AtomicBool,
    future: Mutex<Option<BoxFuture<()>>>,
}

impl Thread {
    pub(super) fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            started: AtomicBool::new(false),
            future: Mutex::new(Some(Box::pin(future))),
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Starts the thread unless it was started.
    pub(super) fn start(&self) -> io::Result<()> {
        match self.has_started() {
            true => Ok(()),
            false => self.start_on(thread::Builder::new()),
        }
    }

    #[cold]
    fn start_on(&self, thread: thread::Builder) -> io::Result<()> {
        let mut future = self.future.lock();
        if future.is_none() {
            return Ok(());
        }
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Supplied once there is a thread. If there is none, the next start still has the future.
        let (supply, supplied) = mpsc::channel::<(Runtime, BoxFuture<()>)>();
        let run = move || {
            let supplied = supplied.recv();
            supplied.map(|(runtime, future)| runtime.block_on(future))
        };
        let thread = thread.name("tower-semaphore".to_owned());
        if let Err(error) = thread.spawn(run) {
            // Dropping a runtime in an asynchronous context panics.
            runtime.shutdown_background();
            return Err(error);
        }
        if let Some(future) = future.take() {
            let _ = supply.send((runtime, future));
        }
        self.started.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_thread_that_cannot_be_started_is_an_error_and_the_next_start_tries_again() {
        let (ran, runs) = oneshot::channel();
        let thread = Thread::new(async move { ran.send(()).expect("the test waits") });
        // No machine has an address space for such a stack.
        let error = thread.start_on(thread::Builder::new().stack_size(1 << 60));
        assert!(error.is_err() && !thread.has_started());
        thread.start().expect("a thread of the usual size");
        assert!(runs.await.is_ok());
    }
}
