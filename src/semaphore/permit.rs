//! One grant, and what its holder can know of it.

use super::{BoxFuture, Loss, Units};
use std::{
    fmt,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::task::AbortHandle;

/// What a store keeps for a permit that it granted. Dropping it gives the permit back.
pub trait Grant: Send + Sync + 'static {
    /// The fencing token: greater than that of every earlier permit of the key.
    fn token(&self) -> u64;

    /// Where the store tells of the loss of this permit.
    fn loss(&self) -> &Loss;

    /// Whether the lease has ended while the owner still runs.
    fn is_lost(&self) -> bool {
        self.loss().is_set()
    }

    /// Gives the permit back now. The release is on its way when this returns; the future only
    /// tells whether the permit was still held.
    fn release(&self) -> BoxFuture<bool>;
}

/// The right to go on, until the last clone is dropped.
///
/// Dropping does no I/O, needs no runtime and never panics: it queues the release.
#[derive(Clone)]
pub struct Permit(Arc<Shared<dyn Grant>>);

struct Shared<G: ?Sized> {
    limit: u32,
    remaining: u32,
    watch: OnceLock<Watch>,
    grant: G,
}

/// Ends the task that watches a permit, together with the permit.
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Permit {
    /// A permit for what a store granted, with `held` units of the key in use, its own included.
    pub fn new(grant: impl Grant, units: Units, held: u32) -> Self {
        Self(Arc::new(Shared {
            limit: units.limit,
            remaining: units.limit.saturating_sub(held),
            watch: OnceLock::new(),
            grant,
        }))
    }

    /// The fencing token: a number that grows with every permit granted for the key. A resource
    /// that refuses a lower token than it has seen is safe from a holder that was paused for
    /// longer than its lease.
    ///
    /// A permit that was lost and came back has a new one.
    pub fn token(&self) -> u64 {
        self.0.grant.token()
    }

    /// The limit under which it was granted, in units.
    pub fn limit(&self) -> u32 {
        self.0.limit
    }

    /// How many units were left when it was granted.
    pub fn remaining(&self) -> u32 {
        self.0.remaining
    }

    /// Whether the lease has ended while this permit was still in use, so that another may hold
    /// its place by now.
    pub fn is_lost(&self) -> bool {
        self.0.grant.is_lost()
    }

    /// Waits until the permit is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn lost(&self) {
        self.0.grant.loss().wait().await;
    }

    /// Gives the permit back for all its clones, and tells whether it was still held.
    ///
    /// `false`: its lease had ended, or it was released before. Needed only by who wants the
    /// answer: a drop gives it back as well.
    ///
    /// # Cancel safety
    ///
    /// The release is queued by the call, not by the first poll; dropping the future loses only
    /// the answer.
    pub fn release(self) -> impl Future<Output = bool> + Send + 'static {
        self.0.grant.release()
    }

    /// Ends the permit after `max_hold`, whatever its holder does then: it is given back, and the
    /// holder is told that it is lost. Only the first call counts.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn end_after(&self, max_hold: Duration) {
        let weak = Arc::downgrade(&self.0);
        self.0.watch.get_or_init(|| {
            let task = tokio::spawn(async move {
                tokio::time::sleep(max_hold).await;
                if let Some(shared) = weak.upgrade() {
                    shared.grant.loss().set();
                    drop(shared.grant.release());
                }
            });
            Watch(task.abort_handle())
        });
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("token", &self.token())
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
