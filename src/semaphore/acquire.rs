//! A permit on its way.

use super::{AcquireError, Permit};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

/// A future that a store boxes, so that the seam needs no type parameter for it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A boxed future that is `Sync`, so that a service or a body may keep it and stay `Sync`.
///
/// The lock is never taken: polling needs exclusive access, which proves that it is free.
pub(crate) struct SyncFuture<T>(Mutex<BoxFuture<T>>);

impl<T> SyncFuture<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Mutex::new(Box::pin(future)))
    }
}

impl<T> Future for SyncFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let future = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        future.as_mut().poll(cx)
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
    Pending(SyncFuture<Result<Permit, AcquireError>>),
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
            State::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            State::Pending(future) => Pin::new(future).poll(cx),
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}
