//! A waiting claim.

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tower_semaphore::{Acquire, AcquireError, Permit};

pub(crate) type Answer = Result<Permit, AcquireError>;

/// A claim in a queue. Dropping it cancels the claim.
pub(crate) struct Waiter(JoinHandle<Answer>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Waiter {
    pub(crate) fn spawn(acquire: Acquire) -> Self {
        Self(tokio::spawn(acquire))
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// The permit of a finished waiter.
    pub(crate) fn permit(mut self) -> Result<Permit, String> {
        let answer = (&mut self.0).now_or_never().expect("it is finished");
        let answer = answer.map_err(|panic| panic.to_string())?;
        answer.map_err(|error| format!("a waiter got {error:?}"))
    }
}
