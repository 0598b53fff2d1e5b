//! How a store reports that a permit is lost.

use std::{
    error::Error,
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering, fence},
    },
};
use tokio::sync::Notify;

/// Whether a permit is lost, and a way to wait for that.
///
/// The store sets it, the holder reads it. A permit that was granted again is not lost any more, but a
/// holder that was waiting has been notified.
#[derive(Debug, Default)]
pub struct Loss {
    lost: AtomicBool,
    /// Created by the first holder that waits: few do, and a process may hold very many permits.
    notify: OnceLock<Box<Notify>>,
}

impl Loss {
    /// The permit is lost. Notifies all that wait.
    pub fn set(&self) {
        self.lost.store(true, Ordering::Release);
        // SeqCst fence, paired with the one in `wait`: prevents a lost wake-up.
        fence(Ordering::SeqCst);
        if let Some(notify) = self.notify.get() {
            notify.notify_waiters();
        }
    }

    /// The permit is held again.
    pub fn clear(&self) {
        self.lost.store(false, Ordering::Release);
    }

    /// Whether the permit is lost now.
    pub fn is_set(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Waits for the next [`set`](Self::set), or returns at once while the permit is lost.
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
/// A body ends in it under [`OnLost::Abort`](crate::OnLost::Abort).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitLost;

impl fmt::Display for PermitLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the permit was lost")
    }
}

impl Error for PermitLost {}
