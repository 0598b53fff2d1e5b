//! A permit that is ended although it is still held.

use super::{
    BoxFuture, Grant, Permit,
    countdown::{Bounded, Countdown},
    future::first,
    permit::Shared,
};
use crate::observe::{LostBy, events};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

impl Permit {
    /// Whether the lease has ended while this permit was still in use, so that another holder may
    /// have its units by now. See [`lost`](Self::lost) for an example.
    ///
    /// `false` again once the store has granted a lost permit again.
    pub fn is_lost(&self) -> bool {
        let grant = &self.0.grant;
        grant.is_lost() || grant.parts().iter().any(Self::is_lost)
    }

    /// Waits until the permit is lost. Never completes if that does not happen, not even after a
    /// release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tower_semaphore::Permit;
    /// async fn export(permit: Permit) -> Result<(), &'static str> {
    ///     tokio::select! {
    ///         () = write_rows() => Ok(()),
    ///         () = permit.lost() => Err("the permit was lost"),
    ///     }
    /// }
    /// # async fn write_rows() {}
    /// # drop(export);
    /// ```
    pub async fn lost(&self) {
        let grant = &self.0.grant;
        if grant.parts().is_empty() {
            return grant.loss().wait().await;
        }
        let parts = grant.parts().iter().map(Self::boxed_lost).collect();
        first(grant.loss().wait(), parts).await;
    }

    /// `lost` with a clone of the permit, boxed: a future that contained itself would have no size.
    fn boxed_lost(&self) -> BoxFuture<()> {
        let permit = self.clone();
        Box::pin(async move { permit.lost().await })
    }

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
        let mut attached = self.0.attached.lock();
        let max_hold = &mut attached.get_or_insert_default().max_hold;
        max_hold.get_or_insert_with(start);
    }

    /// A reference that holds nothing.
    pub(crate) fn downgrade(&self) -> WeakPermit {
        WeakPermit(Arc::downgrade(&self.0))
    }

    /// Releases the permit for all its clones and reports it lost.
    pub(crate) fn end(&self, by: LostBy) {
        self.0.end_by(by);
    }

    fn report_lost(&self) {
        self.0.report_lost();
    }
}

/// A permit, if it still exists.
pub(crate) struct WeakPermit(Weak<Shared<dyn Grant>>);

impl WeakPermit {
    pub(crate) fn upgrade(&self) -> Option<Permit> {
        self.0.upgrade().map(Permit)
    }
}

/// A permit that has been held for as long as it may be.
impl Bounded for Shared<dyn Grant> {
    fn left(&self) -> Duration {
        Duration::ZERO
    }

    fn end(&self) {
        self.end_by(LostBy::Bound);
    }
}

impl Shared<dyn Grant> {
    /// Reports the loss again after the release: between the two reports the store may have granted
    /// the permit again.
    fn end_by(&self, by: LostBy) {
        self.counts_end(by);
        self.report_lost();
        drop(self.grant.release());
        self.report_lost();
    }

    /// The permits of single limits count, which know nothing of each other. What is lost or
    /// released already is not lost by this, and of two ends that meet one counts.
    fn counts_end(&self, by: LostBy) {
        self.drop_kept();
        let is_gone = || self.grant.is_lost() || self.grant.weight() == Some(0);
        let ended = self.held.end();
        if let Some(store) = ended.filter(|_| !is_gone()) {
            self.held.lost(by);
            events::lost(store, self.policy.as_str(), by, self.grant.token());
        }
        let parts = self.grant.parts().iter();
        parts.for_each(|part| part.0.counts_end(by));
    }

    /// A permit in shadow is never lost, because its holder would not lose it but for the trial.
    fn report_lost(&self) {
        if !self.is_shadow {
            self.grant.loss().set();
        }
        self.grant.parts().iter().for_each(Permit::report_lost);
    }
}
