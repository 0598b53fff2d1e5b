//! The settings of the store in memory.

use super::store::MemorySemaphore;
use std::sync::atomic::Ordering::Relaxed;

impl MemorySemaphore {
    /// Sets how many claims may wait at a time, for all keys of the store together: 10,000 unless
    /// set. Further claims that would wait are refused with [`AcquireError::Overloaded`](crate::AcquireError::Overloaded).
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

    /// Lists the permits that are granted from here on, so that [`usage`](crate::Operate::usage) shows who
    /// holds them, and [`revoke`](crate::Operate::revoke) can end them. A pair of acquire and release takes
    /// longer then: by about 100 ns where a key has few permits, and by a nanosecond for each further
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
