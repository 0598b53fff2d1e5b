//! The future that resolves to a permit.

use super::{
    AcquireError, Key, Permit, Policy, SyncFuture,
    counted::{Counted, answered},
};
use crate::observe::{self, Store};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The future that [`Semaphore::acquire`](super::Semaphore::acquire) returns: it resolves to a
/// permit, or to the reason why there is none.
///
/// # Panics
///
/// When it is polled after it was ready. When its store needs a Tokio runtime and it is polled
/// outside of one.
///
/// # Runtimes
///
/// With the stores of this crate it may be polled in one runtime after the other, also after the first has
/// ended, and keeps its position in the queue. In Redis that position ends if nobody polls the future for some
/// heartbeats, and a connection that was supplied fails when the runtime that
/// made it has ended. In a store of your own a timer of Tokio's panics then.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind: the claim leaves the queue, and a permit that was
/// already granted is released.
///
/// # Examples
///
/// A store of your own answers at once, or with a future:
///
/// ```
/// use tower_semaphore::{
///     Acquire, Claim, MemorySemaphore, Permit, Semaphore,
///     semaphore::{BoxFuture, Grant, Loss},
/// };
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
/// struct Pair {
///     permits: [Permit; 2],
///     loss: Loss,
/// }
///
/// impl Grant for Pair {
///     fn token(&self) -> Option<u64> {
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
    Counted(SyncFuture<Result<Permit, AcquireError>>, Counted),
}

impl Acquire {
    /// A future of an answer that is known already. Needs no allocation. See [`Acquire`] for an
    /// example.
    #[inline]
    pub fn ready(answer: Result<Permit, AcquireError>) -> Self {
        Self(State::Ready(Some(answer)))
    }

    /// A future of the answer that `future` will give, boxed. See [`Acquire`] for an example.
    pub fn pending(
        future: impl Future<Output = Result<Permit, AcquireError>> + Send + 'static,
    ) -> Self {
        Self(State::Pending(SyncFuture::new(future)))
    }

    /// The claim, or the first of several, is for this policy and key. It is counted by its outcome.
    #[inline]
    pub(crate) fn counted(self, store: Store, policy: &Policy, key: &Key) -> Self {
        if !observe::IS_ON {
            return self;
        }
        Self(match self.0 {
            State::Ready(Some(answer)) => {
                answered(&answer, store, policy, key);
                State::Ready(Some(answer))
            }
            State::Pending(future) => State::Counted(future, Counted::begin(store, policy, key)),
            state => state,
        })
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
            State::Counted(future, counted) => {
                let answer = ready!(Pin::new(future).poll(cx));
                counted.answered(&answer);
                Poll::Ready(answer)
            }
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}
