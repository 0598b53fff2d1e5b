//! A claim that waits.

use std::mem;
use tokio::{sync::oneshot, task::JoinHandle};
use tower_semaphore::{Acquire, AcquireError, Permit};

pub(crate) type Answer = Result<Permit, AcquireError>;

/// A claim in a queue. Dropped, it is cancelled.
pub(crate) struct Waiter {
    /// `None` once it is killed.
    acquire: JoinHandle<Option<Answer>>,
    kill: Option<oneshot::Sender<()>>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.kill.is_some() {
            self.acquire.abort();
        }
    }
}

impl Waiter {
    pub(crate) fn spawn(mut acquire: Acquire) -> Self {
        let (kill, killed) = oneshot::channel();
        let acquire = tokio::spawn(async move {
            tokio::select! {
                answer = &mut acquire => return Some(answer),
                Ok(()) = killed => {}
            }
            // A killed process does not leave the queue: it is not heard of any more.
            mem::forget(acquire);
            None
        });
        Self {
            acquire,
            kill: Some(kill),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.acquire.is_finished()
    }

    /// Ends its task, and tells the store nothing.
    pub(crate) async fn kill(mut self) {
        let kill = self.kill.take().expect("it is killed once");
        kill.send(()).expect("it waits");
        let killed = (&mut self.acquire).await.expect("no panic");
        assert!(killed.is_none(), "it was granted meanwhile");
    }

    /// The permit of one that is finished.
    pub(crate) fn permit(mut self) -> Result<Permit, String> {
        use futures_util::FutureExt;
        let answer = (&mut self.acquire).now_or_never().expect("it is finished");
        match answer.map_err(|panic| panic.to_string())? {
            Some(Ok(permit)) => Ok(permit),
            answer => Err(format!("a waiter got {answer:?}")),
        }
    }
}
