//! Holds the permit to the last frame.

mod guard;
mod request;
mod started;

pub(crate) use guard::{BoxError, PermitGuard, Tunnel};
pub use request::RequestBody;
pub(crate) use request::Upload;

use crate::{reject::RejectionBody, semaphore::Permit};
use bytes::Bytes;
use guard::Step;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use started::{Started, poll_step};
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

pin_project! {
    /// The body of a response, which releases the permit when it ends.
    ///
    /// Frames, trailers and size are the inner body's. The body ends when the inner body reports
    /// its end after a frame, returns trailers or no more frames, fails, or is dropped, whichever
    /// comes first. A body that a server has taken in one frame has ended, however slowly the
    /// client reads it.
    ///
    /// Over Redis the layer polls the body of a full key once before it returns the response, and holds that frame. A
    /// body that ends in this frame has ended then, and its permit is released.
    ///
    /// # Errors
    ///
    /// Those of the inner body, boxed. Under [`OnLost::Abort`](crate::OnLost::Abort) a body whose
    /// permit is lost ends in a [`PermitLost`](crate::PermitLost), and that of a gRPC response in
    /// trailers with `grpc-status` 14.
    pub struct ResponseBody<B> {
        #[pin]
        inner: Inner<B>,
        guard: Option<PermitGuard>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<B> {
        Body { #[pin] body: B },
        /// Boxed, because it was polled before it moved into the response.
        Started { started: Pin<Box<Started<B>>> },
        Rejection { body: RejectionBody },
        Aborted,
    }
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn new(body: B, guard: Option<PermitGuard>) -> Self {
        Self {
            guard: guard.filter(|_| !body.is_end_stream()),
            inner: Inner::Body { body },
        }
    }

    /// Polls the body once, before the response's head is returned. Also returns the permit if the body has ended and
    /// nothing else holds the permit; its caller should release it.
    pub(crate) fn start(body: B, guard: PermitGuard, cx: &mut Context<'_>) -> (Self, Option<Permit>)
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            let permit = guard.last_permit();
            return (Self::new(body, Some(guard)), permit);
        }
        let (started, has_ended) = Started::poll_first(body, cx);
        let permit = guard.last_permit().filter(|_| has_ended);
        let body = Self {
            inner: Inner::Started { started },
            guard: permit.is_none().then_some(guard),
        };
        (body, permit)
    }

    pub(crate) fn rejection(body: RejectionBody) -> Self {
        Self {
            guard: None,
            inner: Inner::Rejection { body },
        }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let lost = this.guard.as_mut().map(|guard| guard.poll_lost(cx));
        if let Some(Poll::Ready(last)) = lost {
            *this.guard = None;
            this.inner.set(Inner::Aborted);
            return Poll::Ready(Some(last));
        }
        let step = this.inner.poll_inner(cx);
        if let Some(guard) = this.guard {
            guard.polled(&step);
        }
        let (frame, ended) = ready!(step);
        if ended {
            *this.guard = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Body { body } => body.is_end_stream(),
            Inner::Started { started } => started.is_end_stream(),
            Inner::Rejection { body } => body.is_end_stream(),
            Inner::Aborted => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Body { body } => body.size_hint(),
            Inner::Started { started } => started.size_hint(),
            Inner::Rejection { body } => body.size_hint(),
            Inner::Aborted => SizeHint::with_exact(0),
        }
    }
}

impl<B> Inner<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn poll_inner(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Step> {
        match self.project() {
            InnerProj::Body { body } => poll_step(body, cx),
            InnerProj::Started { started } => started.as_mut().poll_next(cx),
            InnerProj::Rejection { body } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready((frame, true))
            }
            InnerProj::Aborted => Poll::Ready((None, true)),
        }
    }
}

/// The inner body's default, without a permit. Needed by layers outside of the limit that create
/// responses, such as tower-http's `TimeoutLayer` and `CorsLayer`.
impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self {
            inner: Inner::Body { body: B::default() },
            guard: None,
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("holds_permit", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}
