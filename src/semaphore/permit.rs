//! One grant, and what its holder can know of it.

use super::{BoxFuture, Loss, Units, max_hold::MaxHold};
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

/// What a store keeps for a permit that it granted. Dropping it releases the permit.
pub trait Grant: Send + Sync + 'static {
    /// The fencing token: greater than that of every earlier permit of the key.
    fn token(&self) -> u64;

    /// Where the store reports the loss of this permit.
    fn loss(&self) -> &Loss;

    /// The permits that this grant is made of, if its store is made of other stores.
    ///
    /// The permit is lost as soon as one of its parts is, so a composite store needs no task that
    /// forwards a loss.
    fn parts(&self) -> &[Permit] {
        &[]
    }

    /// Whether the lease has ended while the owner still runs.
    fn is_lost(&self) -> bool {
        self.loss().is_set()
    }

    /// Releases the permit now. The release is queued when this returns; the future only reports
    /// whether the permit was still held.
    fn release(&self) -> BoxFuture<bool>;
}

/// The right to go on, until the last clone is dropped.
///
/// Dropping does no I/O, needs no runtime and never panics: it queues the release.
///
/// A permit that a layer puts into a request's extensions also keeps the permits of the limits
/// outside of that layer. It is lost as soon as one of them is, and [`release`](Self::release)
/// releases all of them. Its token, limit and remaining units are those of the innermost limit.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::new();
/// let claim = Claim::new("account-42").with_limit(2);
///
/// let permit = semaphore.acquire(claim.clone()).await.unwrap();
/// assert_eq!((permit.limit(), permit.remaining()), (2, 1));
/// let later = semaphore.acquire(claim).await.unwrap();
/// assert!(permit.token() < later.token());
///
/// assert!(permit.release().await, "it was still held");
/// assert!(!permit.release().await, "it is not held any more");
/// # }
/// ```
#[derive(Clone)]
#[must_use = "dropping the permit releases it"]
pub struct Permit(Arc<Shared<dyn Grant>>);

struct Shared<G: ?Sized> {
    limit: u32,
    remaining: u32,
    max_hold: OnceLock<MaxHold>,
    grant: G,
}

impl Permit {
    /// A permit for what a store granted, with `held` units of the key in use, its own included.
    pub fn new(grant: impl Grant, units: Units, held: u32) -> Self {
        Self(Arc::new(Shared {
            limit: units.limit,
            remaining: units.limit.saturating_sub(held),
            max_hold: OnceLock::new(),
            grant,
        }))
    }

    /// The fencing token: a number that grows with every permit granted for the key. A resource
    /// that refuses a lower token than it has seen is safe from a holder that was paused for
    /// longer than its lease.
    ///
    /// A permit that was lost and granted again has a new token.
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

    /// Whether the lease has ended while this permit was still in use, so that another holder may
    /// have its units by now.
    pub fn is_lost(&self) -> bool {
        let grant = &self.0.grant;
        grant.is_lost() || grant.parts().iter().any(Self::is_lost)
    }

    /// Waits until the permit is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn lost(&self) {
        let grant = &self.0.grant;
        if grant.parts().is_empty() {
            return grant.loss().wait().await;
        }
        let mut own = pin!(grant.loss().wait());
        let parts = grant.parts().iter().map(Self::boxed_lost);
        let mut parts: Vec<_> = parts.collect();
        poll_fn(|cx| {
            let mut lost = own.as_mut().poll(cx).is_ready();
            for permit in &mut parts {
                lost |= permit.as_mut().poll(cx).is_ready();
            }
            if lost { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Owns a clone, because a future that contained itself would have no size.
    fn boxed_lost(&self) -> BoxFuture<()> {
        let permit = self.clone();
        Box::pin(async move { permit.lost().await })
    }

    /// Releases the permit for all its clones, and reports whether it was still held.
    ///
    /// `false`: its lease had ended, or it was released before. Only a caller that needs this
    /// answer needs this method: dropping the last clone releases the permit as well.
    ///
    /// The answer comes from the store. While the store cannot be reached, it may take as long as
    /// the permit's lease; by then the permit has ended by itself.
    ///
    /// # Cancel safety
    ///
    /// The release is queued by the call, not by the first poll; dropping the future loses only
    /// the answer.
    pub fn release(&self) -> impl Future<Output = bool> + Send + use<> {
        self.0.grant.release()
    }

    /// Ends the permit after `max_hold`, whatever its holder does then: it is released and
    /// reported lost. Only the first call counts.
    ///
    /// The time is counted in the current runtime, and by a thread of the process's own after that
    /// runtime has ended. While the runtime is not driven, or all its workers are blocked, a permit
    /// ends late.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn end_after(&self, max_hold: Duration) {
        let start = || MaxHold::start(Arc::downgrade(&self.0), max_hold, Shared::end);
        self.0.max_hold.get_or_init(start);
    }

    fn report_lost(&self) {
        self.0.report_lost();
    }

    /// This permit, which also keeps `outer` until the last clone is dropped: it is lost when one
    /// of the two is, and releasing it releases both. All else that it reports is its own.
    ///
    /// Nested layers need it, because a request's extensions hold one permit.
    pub(crate) fn over(self, outer: Self) -> Self {
        let (limit, remaining) = (self.limit(), self.remaining());
        let stack = Stack {
            permits: [self, outer],
            loss: Loss::default(),
        };
        Self(Arc::new(Shared {
            limit,
            remaining,
            max_hold: OnceLock::new(),
            grant: stack,
        }))
    }
}

impl Shared<dyn Grant> {
    /// Reports the loss again after the release: until then the permit may have come back.
    fn end(&self) {
        self.report_lost();
        drop(self.grant.release());
        self.report_lost();
    }

    fn report_lost(&self) {
        self.grant.loss().set();
        self.grant.parts().iter().for_each(Permit::report_lost);
    }
}

/// Permits of nested limits, the innermost first.
struct Stack {
    permits: [Permit; 2],
    /// Set only when the stack itself is ended.
    loss: Loss,
}

impl Grant for Stack {
    fn token(&self) -> u64 {
        self.permits[0].token()
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn parts(&self) -> &[Permit] {
        &self.permits
    }

    fn release(&self) -> BoxFuture<bool> {
        // Both are queued before the first is awaited.
        let [own, outer] = self.permits.each_ref().map(Permit::release);
        Box::pin(async move { own.await & outer.await })
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
