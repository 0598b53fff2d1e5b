//! A permit, and the grant of a store behind it.

use super::{
    AcquireError, BoxFuture, ClaimError, Loss, Policy, SemaphoreId, Units, countdown::Countdown,
};
use crate::{
    observe::{Held, Store},
    sync::{AtomicBool, Mutex},
};
use std::{
    any::Any,
    fmt,
    future::{Future, ready},
    sync::{Arc, Weak, atomic::AtomicU32},
};

/// Units of a key that a store has granted. They are held until the last clone is dropped.
///
/// Dropping a permit does no I/O, needs no runtime and never panics: it queues the release.
///
/// A permit that a layer puts into a request's extensions also keeps the permits of the limits
/// outside of that layer. Such a permit is lost as soon as one of these is, and
/// [`release`](Self::release) releases all of them. Its token, limit and remaining units are those
/// of the innermost limit. The same holds for a permit of [several claims](super::Claims): the
/// narrowest is the innermost.
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
pub struct Permit(pub(super) Arc<Shared<dyn Grant>>);

/// The store's side of a permit. Dropping the grant must release the permit.
///
/// A store of your own implements this trait for the type that it passes to [`Permit::new`]. See
/// [`Acquire`](super::Acquire) for an example.
pub trait Grant: Send + Sync + 'static {
    /// The fencing token: greater than that of every earlier permit of the key. `None`: the store has given it
    /// none, or none yet.
    fn token(&self) -> Option<u64>;

    /// The place where the store reports the loss of this permit.
    fn loss(&self) -> &Loss;

    /// The permits that this grant combines, if its store combines other stores: none unless
    /// implemented.
    ///
    /// The permit is lost as soon as one of its parts is, so a composite store needs no task that
    /// forwards a loss.
    fn parts(&self) -> &[Permit] {
        &[]
    }

    /// Whether the lease has ended while the permit was in use: [`Loss::is_set`] unless
    /// implemented.
    fn is_lost(&self) -> bool {
        self.loss().is_set()
    }

    /// Whether the permit goes on without its store, which was unavailable: never unless
    /// implemented. See [`Permit::is_degraded`].
    fn is_degraded(&self) -> bool {
        false
    }

    /// How many units the permit holds now, 0 after its release, if the store can change that number:
    /// then it implements [`grow`](Self::grow) and [`shrink`](Self::shrink) too. `None` unless
    /// implemented: as many as it was made with, and
    /// [`Permit::resize`] fails with [`ClaimError::FixedWeight`].
    ///
    /// A permit changes its weight once at a time: its clones wait for each other. It may be released
    /// meanwhile.
    fn weight(&self) -> Option<u32> {
        None
    }

    /// Adds units to the permit, as a claim for them that does not wait. Its limit is
    /// [`Permit::limit`], which may be lower than when the permit was granted.
    /// [`weight`](Self::weight) counts the units before the future is ready. A future that fails, or is
    /// dropped before it is ready, leaves the permit as it was. The permit itself names its policy in a
    /// refusal.
    fn grow(&self, units: Units) -> BoxFuture<Result<(), AcquireError>> {
        let _ = units;
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    /// Releases that many of the permit's units, fewer than it has. As with
    /// [`release`](Self::release) that is queued when this method returns, and
    /// [`weight`](Self::weight) counts them no more; the future is ready when the store has them.
    ///
    /// # Errors
    ///
    /// With [`PermitLost`](super::PermitLost) as its source for a permit that is released. A lost
    /// permit becomes lighter too: so many units fewer are granted again.
    fn shrink(&self, units: u32) -> Result<BoxFuture<()>, AcquireError> {
        let _ = units;
        Err(ClaimError::FixedWeight.into())
    }

    /// Names the semaphore that the permit counts in, as
    /// [`Semaphore::semaphore_id`](super::Semaphore::semaphore_id) does. `None` unless implemented.
    fn semaphore_id(&self) -> Option<SemaphoreId> {
        None
    }

    /// Releases the permit now. The release is queued when this method returns; the future only
    /// reports whether the permit was still held. A later call reports `false`.
    fn release(&self) -> BoxFuture<bool>;
}

pub(super) struct Shared<G: ?Sized> {
    pub(super) policy: Policy,
    pub(super) limit: u32,
    /// The lowest limit of the inner layers that have shared it; `u32::MAX` if there is none.
    pub(super) inner_limit: AtomicU32,
    pub(super) remaining: u32,
    /// How many units it was granted with.
    pub(super) weight: u32,
    /// Whether its request is admitted in any case.
    pub(super) is_shadow: bool,
    /// Whether it shares its only level with the permit of an outer limit.
    pub(super) is_share: bool,
    /// Whether a level of it is shared by an outer and an inner limit.
    pub(super) is_shared: AtomicBool,
    /// Whether a clone changes its weight now.
    pub(super) is_changing: AtomicBool,
    pub(super) held: Held,
    /// Few permits have any.
    pub(super) attached: Mutex<Option<Box<Attached>>>,
    pub(super) grant: G,
}

/// What is dropped with a permit's last clone at the latest.
#[derive(Default)]
pub(super) struct Attached {
    pub(super) max_hold: Option<Countdown>,
    /// The inner limit that shares this permit now.
    pub(super) taken: Weak<()>,
    kept: Option<Box<dyn Any + Send + Sync>>,
}

impl Permit {
    /// A permit for what a store has granted: `held` is how many units of the key were held then,
    /// the permit's own included. See [`Acquire`](super::Acquire) for an example.
    pub fn new(grant: impl Grant, units: Units, held: u32) -> Self {
        Self::granted(grant, Store::Custom, Policy::DEFAULT, units, held)
    }

    #[inline]
    pub(super) fn from_parts(
        grant: impl Grant,
        policy: Policy,
        units: Units,
        remaining: u32,
        held: Held,
    ) -> Self {
        Self(Arc::new(Shared {
            policy,
            limit: units.limit,
            inner_limit: AtomicU32::new(u32::MAX),
            remaining,
            weight: units.weight,
            is_shadow: false,
            is_share: false,
            is_shared: AtomicBool::new(false),
            is_changing: AtomicBool::new(false),
            held,
            attached: Mutex::new(None),
            grant,
        }))
    }

    /// Keeps something until the permit is released, for all its clones. Only the first call counts.
    pub(crate) fn keep(&self, kept: Box<dyn Any + Send + Sync>) {
        let mut attached = self.0.attached.lock();
        attached.get_or_insert_default().kept.get_or_insert(kept);
    }

    /// The fencing token: a number that grows with every permit granted for the key. A resource
    /// that refuses a lower token than it has seen is safe from a holder that was paused for
    /// longer than its lease.
    ///
    /// A permit that was lost and granted again has a new token, unless only units were lost that it
    /// had gained by [`resize`](Self::resize). `None`: it has none, or none yet, because the store was
    /// unavailable when it was admitted, or because its limit is on trial. See [`Permit`] for an example.
    pub fn token(&self) -> Option<u64> {
        self.0.grant.token()
    }

    pub(super) fn parts(&self) -> &[Self] {
        self.0.grant.parts()
    }

    /// Releases the permit for all its clones, and reports whether it was still held. See
    /// [`Permit`] for an example.
    ///
    /// `false`: its lease had ended, or it was released before. Only a caller that needs this
    /// answer needs this method: dropping the last clone releases the permit as well.
    ///
    /// The answer comes from the store. While the store cannot be reached, the answer may take as
    /// long as the permit's lease; by then the permit has ended by itself.
    ///
    /// # Cancel safety
    ///
    /// The call queues the release before the first poll; dropping the future loses only the
    /// answer.
    pub fn release(&self) -> impl Future<Output = bool> + Send + use<> {
        self.0.held.end();
        self.0.drop_kept();
        self.0.grant.release()
    }
}

impl<G: ?Sized> Shared<G> {
    pub(super) fn drop_kept(&self) {
        let take = |attached: &mut Box<Attached>| attached.kept.take();
        let kept = self.attached.lock().as_mut().and_then(take);
        // Only now, without the lock: its `Drop` runs.
        drop(kept);
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
