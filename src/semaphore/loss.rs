//! How a store tells a holder that its lease has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Whether a permit is lost, and a way to wait for it.
///
/// The store sets it, the holder looks at it. A permit that came back is not lost any more, but
/// whoever waited has been told.
#[derive(Debug, Default)]
pub struct Loss {
    lost: AtomicBool,
    told: Notify,
}

impl Loss {
    /// Tells everybody who waits.
    pub fn set(&self) {
        self.lost.store(true, Ordering::Release);
        self.told.notify_waiters();
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
        // `notified` counts from its creation, so a `set` between the two lines is not missed.
        let told = self.told.notified();
        if !self.is_set() {
            told.await;
        }
    }
}
