//! The future of a permit.

use super::{AcquireError, Permit, SyncFuture};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// The future of a permit, which [`Semaphore::acquire`](super::Semaphore::acquire) returns.
///
/// # Panics
///
/// When it is polled after it was ready.
///
/// # Cancel safety
///
/// Dropping it leaves nothing behind.
///
/// # Examples
///
/// A store of your own answers at once, or with a future:
///
/// ```
/// use tower_semaphore::{Acquire, Claim, MemorySemaphore, Semaphore};
///
/// /// Grants a permit of both stores or of none.
/// struct Both(MemorySemaphore, MemorySemaphore);
///
/// impl Semaphore for Both {
///     fn acquire(&self, claim: Claim) -> Acquire {
///         let units = match claim.units() {
///             Ok(units) => units,
///             Err(error) => return Acquire::ready(Err(error)),
///         };
///         let (first, second) = (self.0.acquire(claim.clone()), self.1.acquire(claim));
///         Acquire::pending(async move {
///             let permits = [first.await?, second.await?];
///             let held = units.limit() - permits[1].remaining();
///             Ok(Permit::new(Pair { permits, loss: Loss::default() }, units, held))
///         })
///     }
/// }
///
/// use tower_semaphore::{Permit, semaphore::{BoxFuture, Grant, Loss}};
///
/// struct Pair {
///     permits: [Permit; 2],
///     loss: Loss,
/// }
///
/// impl Grant for Pair {
///     fn token(&self) -> u64 {
///         self.permits[0].token()
///     }
///
///     fn loss(&self) -> &Loss {
///         &self.loss
///     }
///
///     // The pair is lost when one of the two is.
///     fn parts(&self) -> &[Permit] {
///         &self.permits
///     }
///
///     fn release(&self) -> BoxFuture<bool> {
///         let [first, second] = self.permits.each_ref().map(Permit::release);
///         Box::pin(async move { first.await & second.await })
///     }
/// }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Acquire(State);

const AGAIN: &str = "`Acquire` polled after it was ready";

enum State {
    Ready(Option<Result<Permit, AcquireError>>),
    Pending(SyncFuture<Result<Permit, AcquireError>>),
}

impl Acquire {
    /// An answer that is known already. Needs no allocation.
    #[inline]
    pub fn ready(answer: Result<Permit, AcquireError>) -> Self {
        Self(State::Ready(Some(answer)))
    }

    /// An answer that `future` will give.
    pub fn pending(
        future: impl Future<Output = Result<Permit, AcquireError>> + Send + 'static,
    ) -> Self {
        Self(State::Pending(SyncFuture::new(future)))
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
            State::Ready(answer) => Poll::Ready(answer.take().expect(AGAIN)),
            State::Pending(future) => Pin::new(future).poll(cx),
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}
