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
use tokio::runtime;

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

    /// Starts it unless it was started.
    pub(super) fn start(&self) -> io::Result<()> {
        match self.has_started() {
            true => Ok(()),
            false => self.start_once(),
        }
    }

    #[cold]
    fn start_once(&self) -> io::Result<()> {
        let mut future = self.future.lock();
        if future.is_none() {
            return Ok(());
        }
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Supplied once there is a thread, so that the next start can try again without one.
        let (supply, supplied) = mpsc::channel::<BoxFuture<()>>();
        thread::Builder::new()
            .name("tower-semaphore".to_owned())
            .spawn(move || supplied.recv().map(|future| runtime.block_on(future)))?;
        if let Some(future) = future.take() {
            let _ = supply.send(future);
        }
        self.started.store(true, Ordering::Release);
        Ok(())
    }
}
