//! The settings of the store in memory.

/// Settings of a [`MemorySemaphore`](crate::MemorySemaphore), which
/// [`MemorySemaphore::builder`](crate::MemorySemaphore::builder) returns.
///
/// # Examples
///
/// ```
/// use tower_semaphore::MemorySemaphore;
///
/// let semaphore = MemorySemaphore::builder().holders(true).max_waiting_total(1_000).build();
/// ```
#[must_use = "settings do nothing until a store is built"]
#[derive(Debug, Clone)]
pub struct Builder {
    pub(super) holders: bool,
    pub(super) max_waiting_total: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            holders: false,
            max_waiting_total: 10_000,
        }
    }
}

impl Builder {
    /// Sets whether the permits are listed, so that [`usage`](crate::Operate::usage) shows who holds them, and
    /// [`revoke`](crate::Operate::revoke) can end them: not unless set. A pair of acquire and release takes
    /// longer then: by about 100 ns where a key has few permits, and by a nanosecond for each further permit of
    /// the key. See [`Builder`] for an example.
    pub fn holders(mut self, holders: bool) -> Self {
        self.holders = holders;
        self
    }

    /// Sets how many claims may wait at a time, for all keys of the store together: 10,000 unless set. Further
    /// claims that would wait are refused with [`AcquireError::Overloaded`](crate::AcquireError::Overloaded).
    /// See [`Builder`] for an example.
    pub fn max_waiting_total(mut self, max_waiting_total: u32) -> Self {
        self.max_waiting_total = max_waiting_total;
        self
    }
}
