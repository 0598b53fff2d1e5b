//! The seam: what the HTTP half asks for and what a store grants.
//!
//! Above it, a service turns a request into a [`Claim`] and keeps the [`Permit`] that it gets.
//! Below it, a store decides how to be atomic. Neither side knows the other, so a store of your
//! own fits in with one method, [`Semaphore::acquire`], and one type that implements [`Grant`].
//!
//! ```
//! use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let semaphore = MemorySemaphore::new();
//! let claim = Claim::new("account-42").with_limit(1);
//!
//! let permit = semaphore.acquire(claim.clone()).await.unwrap();
//! assert!(semaphore.acquire(claim.clone()).await.is_err());
//!
//! drop(permit);
//! assert!(semaphore.acquire(claim).await.is_ok());
//! # }
//! ```

mod claim;
mod error;
mod key;
mod loss;
mod permit;

pub use claim::{Claim, DEFAULT_LINE, MAX_WEIGHT, Units, Wait};
pub use error::{AcquireError, ClaimError, StoreError};
pub use key::{Key, Policy};
pub use loss::Loss;
pub use permit::{Grant, Permit};

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

/// A future that a store boxes, so that the seam needs no type parameter for it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A counting semaphore for each key.
///
/// A handle: cheap to clone, and all clones count together. See the [module docs](self).
pub trait Semaphore: Send + Sync + 'static {
    /// Takes a permit for `claim`, or says why there is none.
    ///
    /// # Errors
    ///
    /// Resolves to an [`AcquireError`]: a refusal ([`AcquireError::is_refusal`]), a claim that no
    /// store can grant, or a failure of the store itself. The three are never confused.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: a permit that was already on its
    /// way is given back.
    fn acquire(&self, claim: Claim) -> Acquire;
}

impl<S: Semaphore + ?Sized> Semaphore for Arc<S> {
    fn acquire(&self, claim: Claim) -> Acquire {
        (**self).acquire(claim)
    }
}

/// A permit on its way: the future that [`Semaphore::acquire`] returns.
///
/// # Cancel safety
///
/// Dropping it leaves nothing behind.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire(State);

enum State {
    Ready(Option<Result<Permit, AcquireError>>),
    /// Never locked: it makes the future `Sync`, so that a service may keep it while it waits.
    Pending(Mutex<BoxFuture<Result<Permit, AcquireError>>>),
}

impl Acquire {
    /// An answer that is known already. Costs no allocation.
    #[inline]
    pub fn ready(answer: Result<Permit, AcquireError>) -> Self {
        Self(State::Ready(Some(answer)))
    }

    /// An answer that `future` will give.
    pub fn pending(
        future: impl Future<Output = Result<Permit, AcquireError>> + Send + 'static,
    ) -> Self {
        Self(State::Pending(Mutex::new(Box::pin(future))))
    }

    /// The answer, if it is known already.
    pub(crate) fn answer(self) -> Result<Result<Permit, AcquireError>, Self> {
        match self.0 {
            State::Ready(Some(answer)) => Ok(answer),
            state => Err(Self(state)),
        }
    }
}

impl Future for Acquire {
    type Output = Result<Permit, AcquireError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            State::Pending(future) => {
                let future = future.get_mut().unwrap_or_else(PoisonError::into_inner);
                future.as_mut().poll(cx)
            }
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}
