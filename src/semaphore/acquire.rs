//! The trait of stores, and the future that resolves to a permit.

use super::{AcquireError, BoxFuture, Claim, Claims, Permit, Policy};
use crate::observe::{self, OutcomeCounter, Store, events::RecordedKey};
use parking_lot::Mutex;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::Instant;

/// A store of counting semaphores, one for each policy and key. See the [module docs](super).
///
/// The stores of this crate are handles: cheap to clone, and all clones count together. A `Box` or
/// an `Arc` of a store is a store too, so a `Box<dyn Semaphore>` can be chosen at run time.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Permit, Semaphore};
///
/// async fn export(store: &dyn Semaphore) -> Option<Permit> {
///     store.acquire(Claim::new("export").with_limit(2)).await.ok()
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert!(export(&MemorySemaphore::new()).await.is_some());
/// # }
/// ```
pub trait Semaphore: Send + Sync + 'static {
    /// Acquires one permit for the claims of a request, at all limits or at none: either in this call, or once the
    /// future is polled. See [`Claims`].
    ///
    /// A wait counts from the start of the whole acquire. A custom store that takes one claim at a time refuses several
    /// claims with the error of [`Claims::only`].
    ///
    /// # Errors
    ///
    /// Resolves to an [`AcquireError`]: a refusal ([`AcquireError::is_refusal`]), a claim that no store can grant, or a
    /// failure of the store itself. The three are never confused. With several limits, a limit that is still full when
    /// the wait for it is over refuses with [`AcquireError::Full`], which names the limit.
    ///
    /// # Panics
    ///
    /// The stores of this crate need a Tokio runtime with time enabled for a claim that waits, and
    /// the store in Redis for any claim. Outside of one the future panics when it is polled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind, at any limit: the claim leaves the queue, and
    /// what was already granted is released.
    fn acquire_all(&self, claims: Claims) -> Acquire;

    /// Acquires a permit for one claim, as [`acquire_all`](Self::acquire_all) does.
    #[inline]
    fn acquire(&self, claim: Claim) -> Acquire {
        self.acquire_all(claim.into())
    }
}

macro_rules! through_pointers {
    ($($pointer:ident)*) => { $(
        impl<S: Semaphore + ?Sized> Semaphore for $pointer<S> {
            fn acquire_all(&self, claims: Claims) -> Acquire {
                (**self).acquire_all(claims)
            }
        }
    )* };
}

through_pointers!(Arc Box);

/// The future that [`Semaphore::acquire_all`] returns: it resolves to a permit or an [`AcquireError`].
///
/// # Panics
///
/// When it is polled after it was ready. When its store needs a Tokio runtime and it is polled
/// outside of one.
///
/// # Runtimes
///
/// With the stores of this crate it may be polled in one runtime after the other, even after the first has ended, and
/// keeps its position in the queue. In Redis it loses the position if it is not polled for some heartbeats. A timer of
/// Tokio in a custom store panics if it is polled after its runtime has ended.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind: the claim leaves the queue, and a permit that was
/// already granted is released.
///
/// # Examples
///
/// A custom store answers at once, or with a future. This store has one unit, whatever the limit of a claim:
///
/// ```
/// use std::{future::ready, mem, sync::{Arc, Mutex}, time::Duration};
/// use tower_semaphore::{
///     Acquire, AcquireError, Claim, Claims, Permit, Semaphore,
///     semaphore::{
///         BoxFuture, ClaimError, Grant, LevelState, Loss, Resize, Resizing, SemaphoreId, StoreError,
///     },
/// };
///
/// #[derive(Default)]
/// struct OneUnit(Arc<Mutex<bool>>);
///
/// impl OneUnit {
///     fn take(&self, claims: Claims) -> Result<Permit, AcquireError> {
///         let claim = claims.only()?;
///         claim.units()?;
///         if mem::replace(&mut *self.0.lock().unwrap(), true) {
///             return Err(AcquireError::full(&claim, 1).by_semaphore(id(&self.0)));
///         }
///         let unit = Unit { is_held: Arc::clone(&self.0), is_mine: Mutex::new(true), loss: Loss::default() };
///         Ok(Permit::new(unit, [(&claim, 1)]))
///     }
/// }
///
/// impl Semaphore for OneUnit {
///     fn acquire_all(&self, claims: Claims) -> Acquire {
///         Acquire::ready(self.take(claims))
///     }
/// }
///
/// /// The store has one semaphore, whatever the policy and the key.
/// fn id(unit: &Arc<Mutex<bool>>) -> SemaphoreId {
///     SemaphoreId::new(Arc::as_ptr(unit))
/// }
///
/// struct Unit {
///     is_held: Arc<Mutex<bool>>,
///     is_mine: Mutex<bool>,
///     loss: Loss,
/// }
///
/// impl Unit {
///     fn give_back(&self) -> bool {
///         let was_held = mem::take(&mut *self.is_mine.lock().unwrap());
///         if was_held {
///             *self.is_held.lock().unwrap() = false;
///         }
///         was_held
///     }
/// }
///
/// impl Grant for Unit {
///     fn level(&self, _level: usize) -> LevelState {
///         LevelState::new(u32::from(*self.is_mine.lock().unwrap()))
///     }
///
///     fn semaphore(&self, _level: usize) -> Option<SemaphoreId> {
///         Some(id(&self.is_held))
///     }
///
///     fn loss(&self) -> &Loss {
///         &self.loss
///     }
///
///     fn resize(&self, _levels: Vec<Resize>) -> Resizing<'_> {
///         Box::pin(ready(Err(ClaimError::FixedWeight.into())))
///     }
///
///     fn release(&self) -> BoxFuture<bool> {
///         Box::pin(ready(self.give_back()))
///     }
///
///     fn pause(&self, _level: usize, _time: Duration, _note: &str) -> BoxFuture<Result<(), StoreError>> {
///         Box::pin(ready(Err(StoreError::new("the store has no pauses"))))
///     }
///
///     fn settle(&self, _level: usize, _used: u32) {}
///
///     fn awaits_release(&self) -> bool {
///         false
///     }
/// }
///
/// impl Drop for Unit {
///     fn drop(&mut self) {
///         self.give_back();
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (store, claim) = (OneUnit::default(), Claim::new("account-42").with_limit(5));
/// let permit = store.acquire(claim.clone()).await.unwrap();
/// assert!(store.acquire(claim.clone()).await.is_err());
/// drop(permit);
/// assert!(store.acquire(claim).await.is_ok());
/// # }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Acquire(AcquireState);

const AGAIN: &str = "`Acquire` polled after it was ready";

enum AcquireState {
    Ready(Option<Result<Permit, AcquireError>>),
    Pending(SyncFuture<Result<Permit, AcquireError>>),
}

impl Acquire {
    /// A future with an answer that is known already. Needs no allocation. See [`Acquire`] for an example.
    #[inline]
    pub fn ready(answer: Result<Permit, AcquireError>) -> Self {
        Self(AcquireState::Ready(Some(answer)))
    }

    /// A future of the answer that `future` will give, boxed. See [`Acquire`] for an example.
    pub fn pending(
        future: impl Future<Output = Result<Permit, AcquireError>> + Send + 'static,
    ) -> Self {
        let start = Instant::now();
        Self(AcquireState::Pending(SyncFuture::new(async move {
            let answer = future.await;
            if let Ok(permit) = &answer {
                permit.set_waited(start.elapsed());
            }
            answer
        })))
    }

    /// Counts the claims by their outcome: at the narrowest limit, unless a refusal names another.
    #[inline]
    pub(crate) fn counted(self, store: Store, claims: &[Claim]) -> Self {
        match claims.first() {
            Some(claim) if observe::IS_ON => self.count_answer(store, claim),
            _ => self,
        }
    }

    fn count_answer(self, store: Store, claim: &Claim) -> Self {
        if let AcquireState::Ready(Some(Ok(permit))) = &self.0 {
            permit.count_claims();
            return self;
        }
        let policy = claim.policy().as_str();
        // Counts the claim as cancelled if it is dropped before the answer.
        let mut counter = OutcomeCounter::begin(store, policy);
        let recorded = RecordedKey::new(store, policy, claim.key().as_bytes());
        let mut count = move |answer: &Result<Permit, AcquireError>| match answer {
            Ok(permit) => {
                counter.granted();
                permit.count_claims();
            }
            Err(error) => {
                let (by, outcome) = (error.policy().map(Policy::as_str), error.outcome());
                counter.refused(by, outcome);
                recorded.refused(by, outcome, error);
            }
        };
        match self.0 {
            AcquireState::Ready(answer) => {
                answer.iter().for_each(count);
                Self(AcquireState::Ready(answer))
            }
            AcquireState::Pending(future) => Self::pending(async move {
                let answer = future.await;
                count(&answer);
                answer
            }),
        }
    }

    /// The answer, if it is known already. Otherwise the future itself.
    pub(crate) fn answer(self) -> Result<Result<Permit, AcquireError>, Self> {
        match self.0 {
            AcquireState::Ready(Some(answer)) => Ok(answer),
            state => Err(Self(state)),
        }
    }
}

impl Future for Acquire {
    type Output = Result<Permit, AcquireError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            AcquireState::Ready(answer) => Poll::Ready(answer.take().expect(AGAIN)),
            AcquireState::Pending(future) => Pin::new(future).poll(cx),
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

/// A boxed future that is `Sync`, so that a service or a body may keep it and stay `Sync`.
///
/// The lock is never taken: polling needs exclusive access, so no other thread can hold the lock.
pub(crate) struct SyncFuture<T>(Mutex<BoxFuture<T>>);

impl<T> SyncFuture<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Mutex::new(Box::pin(future)))
    }
}

impl<T> Future for SyncFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.get_mut().as_mut().poll(cx)
    }
}
