//! How a body is polled, also before its response's head is returned.

use super::guard::{BoxError, Step};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

pin_project! {
    /// Returns the frame of the first poll, and then those of the body.
    pub(super) struct Started<B> {
        // `None` if the body had no frame then, or once the frame is returned.
        first: Option<Step>,
        // The size of the body with that frame.
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
    /// Also returns true if the body has ended.
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

    pub(super) fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Step> {
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
            Some(_) => self.size,
            None => self.body.size_hint(),
        }
    }
}

/// Polls a body, and notes its end.
pub(super) fn poll_step<B>(mut body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Step>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let frame = ready!(body.as_mut().poll_frame(cx));
    let ended = is_last(frame.as_ref()) || body.is_end_stream();
    Poll::Ready((frame.map(|frame| frame.map_err(Into::into)), ended))
}

/// Whether no frame follows. Trailers are the last frame, even if the body does not report its end.
fn is_last<E>(frame: Option<&Result<Frame<Bytes>, E>>) -> bool {
    match frame {
        Some(Ok(frame)) => frame.is_trailers(),
        Some(Err(_)) | None => true,
    }
}
