//! Tokio's channel for one value, with an ordering that loom sees.
//!
//! Tokio's own tests check the channel. For loom the send, the receipt and the drop of the receiver are single steps on
//! one atomic, so each sees the effects of the earlier ones. Only the order of these steps matters: nothing reads the
//! value.

use loom::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::oneshot;

pub(crate) struct Sender<T> {
    inner: oneshot::Sender<T>,
    step: Arc<AtomicBool>,
}

pub(crate) struct Receiver<T> {
    inner: oneshot::Receiver<T>,
    step: Arc<AtomicBool>,
}

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    let step = Arc::new(AtomicBool::new(false));
    let sender = Sender {
        inner: sender,
        step: Arc::clone(&step),
    };
    let receiver = Receiver {
        inner: receiver,
        step,
    };
    (sender, receiver)
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) -> Result<(), T> {
        self.step.swap(true, AcqRel);
        self.inner.send(value)
    }
}

/// The receiver's drop also drops a value that was sent before, so it must come after the send for loom too.
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.step.swap(true, AcqRel);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let received = ready!(Pin::new(&mut self.inner).poll(cx));
        self.step.swap(true, AcqRel);
        Poll::Ready(received)
    }
}
