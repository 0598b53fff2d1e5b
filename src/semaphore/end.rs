//! A permit that is ended although it is still held.

use super::{
    Grant, Permit,
    countdown::{Bounded, Countdown},
    permit::Shared,
};
use std::{sync::Arc, time::Duration};

impl Permit {
    /// Ends the permit `max_hold` from now, whatever its holder does then: the permit is released
    /// and reported lost. Only the first call counts.
    ///
    /// The time is counted in the current runtime and, after that has ended, on a thread of this
    /// crate. While the runtime is not driven, or all its workers are blocked, the permit ends late.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration; use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let claim = Claim::new("account-42").with_limit(1);
    /// let permit = MemorySemaphore::new().acquire(claim).await.unwrap();
    /// permit.end_after(Duration::from_millis(10));
    /// permit.lost().await;
    /// assert!(!permit.release().await);
    /// # }
    /// ```
    pub fn end_after(&self, max_hold: Duration) {
        // A clone of one level may outlive the permit of all.
        self.parts()
            .iter()
            .for_each(|part| part.end_after(max_hold));
        let start = || Countdown::start(Arc::downgrade(&self.0), max_hold);
        self.0.max_hold.get_or_init(start);
    }

    /// Releases the permit for all its clones and reports it lost.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    fn report_lost(&self) {
        self.0.report_lost();
    }
}

/// A permit that has been held for as long as it may be.
impl Bounded for Shared<dyn Grant> {
    fn left(&self) -> Duration {
        Duration::ZERO
    }

    /// Reports the loss again after the release: between the two reports the store may have granted
    /// the permit again.
    fn end(&self) {
        self.report_lost();
        drop(self.grant.release());
        self.report_lost();
    }
}

impl Shared<dyn Grant> {
    fn report_lost(&self) {
        self.grant.loss().set();
        self.grant.parts().iter().for_each(Permit::report_lost);
    }
}
