//! Polls a body, even before its response's head is returned.

use super::guard::PolledFrame;
use crate::semaphore::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

pin_project! {
    /// A body that was polled once. Returns the frame of that poll, and then the other frames.
    pub(super) struct Started<B> {
        // `None` if the first poll had no frame, or once the frame is returned.
        first: Option<PolledFrame>,
        // The size of the body including the first frame.
        size: SizeHint,
        #[pin]
        body: B,
    }
}

impl<B> Started<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Polls a body once. Also returns true if the body has ended.
    pub(super) fn poll_first(body: B, cx: &mut Context<'_>) -> (Pin<Box<Self>>, bool) {
        let mut started = Box::pin(Self {
            first: None,
            size: body.size_hint(),
            body,
        });
        let this = started.as_mut().project();
        if let Poll::Ready(step) = poll_step(this.body, cx) {
            *this.first = Some(step);
        }
        let has_ended = matches!(started.first, Some((_, true)));
        (started, has_ended)
    }

    pub(super) fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PolledFrame> {
        let this = self.project();
        match this.first.take() {
            Some(step) => Poll::Ready(step),
            None => poll_step(this.body, cx),
        }
    }
}

impl<B: Body> Started<B> {
    pub(super) fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self.first {
            // `Copy` only from http-body 1.1 on.
            Some(_) => Clone::clone(&self.size),
            None => self.body.size_hint(),
        }
    }
}

/// Polls a body. Also returns true if no frame follows.
pub(super) fn poll_step<B>(mut body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<PolledFrame>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let frame = ready!(body.as_mut().poll_frame(cx));
    let ended = is_last(frame.as_ref()) || body.is_end_stream();
    Poll::Ready((frame.map(|frame| frame.map_err(Into::into)), ended))
}

/// True if no frame follows. Trailers are the last frame, even if the body does not report its end.
fn is_last<E>(frame: Option<&Result<Frame<Bytes>, E>>) -> bool {
    match frame {
        Some(Ok(frame)) => frame.is_trailers(),
        Some(Err(_)) | None => true,
    }
}
