//! How a store tells a holder that its lease has ended.

use std::{
    error::Error,
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering, fence},
    },
};
use tokio::sync::Notify;

/// Whether a permit is lost, and a way to wait for it.
///
/// The store sets it, the holder looks at it. A permit that came back is not lost any more, but
/// whoever waited has been told.
#[derive(Debug, Default)]
pub struct Loss {
    lost: AtomicBool,
    /// Made by the first who waits; few do, and a process may hold very many permits.
    told: OnceLock<Box<Notify>>,
}

impl Loss {
    /// Tells everybody who waits.
    pub fn set(&self) {
        self.lost.store(true, Ordering::Release);
        // Either this sees who waits, or who waits sees that it is lost.
        fence(Ordering::SeqCst);
        if let Some(told) = self.told.get() {
            told.notify_waiters();
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

    /// Waits for the next [`set`](Self::set), or returns at once while it is set.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait(&self) {
        // `notified` counts from its creation, so a `set` after it is not missed.
        let told = self.told.get_or_init(Box::default).notified();
        fence(Ordering::SeqCst);
        if !self.is_set() {
            told.await;
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
