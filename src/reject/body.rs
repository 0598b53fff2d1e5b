//! The body of a rejection.

use crate::semaphore::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    pin::Pin,
    task::{Context, Poll},
};

type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// The body of the default rejection, or of the response that a user's function made.
pub(crate) enum RejectionBody {
    Text(String),
    /// The lock makes the body `Sync`, which many bodies are not. It is never contended.
    Boxed(Mutex<BoxBody>),
}

impl RejectionBody {
    pub(crate) fn boxed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::Boxed(Mutex::new(Box::pin(Erased(Box::pin(body)))))
    }
}

impl Body for RejectionBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Text(text) => Pin::new(text).poll_frame(cx).map_err(Into::into),
            Self::Boxed(body) => body.get_mut().as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Boxed(body) => body.lock().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => text.size_hint(),
            Self::Boxed(body) => body.lock().size_hint(),
        }
    }
}

/// A body whose errors are boxed. The inner box makes it `Unpin`, so that it can be polled without a projection.
struct Erased<B>(Pin<Box<B>>);

impl<B> Body for Erased<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
