//! The settings of the store in memory.

use super::store::MemorySemaphore;
use std::sync::atomic::Ordering::Relaxed;

impl MemorySemaphore {
    /// Sets the maximum of waiting claims, for all keys of the store together. The default is
    /// 10,000. Further claims that would wait are refused with
    /// [`AcquireError::Overloaded`](crate::AcquireError::Overloaded).
    ///
    /// The setting applies to the store, so to all its handles.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::MemorySemaphore;
    ///
    /// let semaphore = MemorySemaphore::new().with_max_waiting_total(1_000);
    /// ```
    pub fn with_max_waiting_total(self, max_waiting_total: usize) -> Self {
        self.0.waiter_slots.set_max(max_waiting_total);
        self
    }

    /// Lists the permits granted from now on, so that [`usage`](crate::Operate::usage) shows their
    /// holders and [`revoke`](crate::Operate::revoke) can end them. An acquire and its release then
    /// take about 100 ns longer for a key with few permits, and a nanosecond more for each further
    /// permit of the key.
    ///
    /// The setting applies to the store, so to all its handles.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::MemorySemaphore;
    ///
    /// let semaphore = MemorySemaphore::new().with_holders();
    /// ```
    pub fn with_holders(self) -> Self {
        self.0.has_holders.store(true, Relaxed);
        self
    }
}
