//! How a store reports that a permit is lost.

use crate::{
    observe::contain,
    sync::{AtomicBool, OnceLock, fence},
};
use std::{error::Error, fmt, sync::atomic::Ordering};
use tokio::sync::Notify;

/// The loss of a permit: its current state, and a way to wait for it.
///
/// The store sets the loss, and clears it when it grants the permit again; the permit's holder
/// reads it. A holder that waited when the loss was set is notified even if it is cleared at once.
///
/// # Examples
///
/// ```
/// use tower_semaphore::semaphore::Loss;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let loss = Loss::default();
/// assert!(!loss.is_set());
/// loss.set();
/// loss.wait().await;
/// loss.clear();
/// assert!(!loss.is_set());
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Loss {
    lost: AtomicBool,
    /// Created by the first holder that waits, because few holders wait and a process may hold very many permits.
    notify: OnceLock<Box<Notify>>,
}

impl Loss {
    /// Reports the permit lost, and wakes every task in [`wait`](Self::wait). See [`Loss`] for an
    /// example.
    pub fn set(&self) {
        self.mark();
        self.wake();
    }

    /// The first half of [`set`](Self::set), which calls no waker, so a lock may be held.
    pub(crate) fn mark(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// The second half of [`set`](Self::set). A waker may do anything, even drop the permit or panic.
    pub(crate) fn wake(&self) {
        // SeqCst fence, paired with the one in `wait`: prevents a lost wake-up.
        fence(Ordering::SeqCst);
        if let Some(notify) = self.notify.get() {
            contain(|| notify.notify_waiters());
        }
    }

    /// Reports the permit held again. See [`Loss`] for an example.
    pub fn clear(&self) {
        self.lost.store(false, Ordering::Release);
    }

    /// True if the permit is lost now. See [`Loss`] for an example.
    pub fn is_set(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Waits for the next [`set`](Self::set); returns at once if the permit is lost. See [`Loss`]
    /// for an example.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait(&self) {
        // `notified` counts from its creation, so a later `set` is not missed.
        let notified = self.notify.get_or_init(Box::default).notified();
        fence(Ordering::SeqCst);
        if !self.is_set() {
            notified.await;
        }
    }
}

/// The error of work that ends, or does not begin, because its permit was lost.
///
/// Under [`OnLost::Abort`](crate::OnLost::Abort) a response's body ends in this error.
/// [`Reason::Lost`](crate::Reason::Lost) and [`Reason::Aborted`](crate::Reason::Aborted) have it too.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitLost;

impl fmt::Display for PermitLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the permit was lost")
    }
}

impl Error for PermitLost {}
