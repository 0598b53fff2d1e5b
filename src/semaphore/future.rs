//! Boxed futures.

use parking_lot::Mutex;
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

/// A boxed future, as [`Grant::release`](super::Grant::release) returns it: so that `Grant` needs no
/// type parameter for it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

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

/// Waits for the first of these futures.
pub(super) async fn first(own: impl Future<Output = ()>, mut others: Vec<BoxFuture<()>>) {
    let mut own = pin!(own);
    poll_fn(|cx| {
        let mut is_ready = own.as_mut().poll(cx).is_ready();
        for other in &mut others {
            is_ready |= other.as_mut().poll(cx).is_ready();
        }
        if is_ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Whether all these releases found what they released still held. Every one is awaited: then
/// nothing is held of any.
pub(crate) async fn all_held(releases: Vec<impl Future<Output = bool>>) -> bool {
    let mut all_held = true;
    for release in releases {
        all_held &= release.await;
    }
    all_held
}
