//! Bodies that hold the permit to the last frame.

mod guard;
mod request;
mod started;

pub(crate) use guard::{PermitGuard, Tunnel};
pub use request::RequestBody;
pub(crate) use request::Upload;

use crate::{
    reject::RejectionBody,
    semaphore::{BoxError, Permit},
};
use bytes::Bytes;
use guard::{Guard, PolledFrame};
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use started::{Started, poll_step};
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Keeps a value until a response's body ends: a [`Permit`](crate::Permit) that a handler has acquired, a span, a
/// counter of requests in flight.
///
/// The guard is dropped when the body ends, fails or is dropped: see [`ResponseBody`]. So a client that hangs up ends
/// it too. If the body has ended already, the guard is dropped at once. The loss of a permit does not end the body.
///
/// # Panics
///
/// If the guard's `Drop` panics, the panic reaches the task that polls or drops the body.
///
/// # Examples
///
/// A gateway holds a permit of the upstream for as long as it streams the upstream's response:
///
/// ```
/// use http::{Request, Response};
/// use tower_semaphore::{AcquireError, Claim, MemorySemaphore, ResponseBody, Semaphore, hold};
///
/// async fn forward(
///     store: &MemorySemaphore,
///     request: Request<String>,
/// ) -> Result<Response<ResponseBody<String>>, AcquireError> {
///     let upstream = Claim::new("upstream-1").with_policy("upstream").with_limit(8);
///     let permit = store.acquire(upstream).await?;
///     let response = send(request).await; // the response of the upstream
///     Ok(hold(response, permit))
/// }
/// # async fn send(request: Request<String>) -> Response<String> { Response::new(request.into_body() + "items") }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # use http_body_util::BodyExt;
/// let store = MemorySemaphore::new();
/// let response = forward(&store, Request::default()).await.unwrap();
/// let full = Claim::new("upstream-1").with_policy("upstream").with_limit(1);
/// assert!(store.acquire(full.clone()).await.is_err());
/// response.into_body().collect().await.unwrap();
/// assert!(store.acquire(full).await.is_ok());
/// # }
/// ```
pub fn hold<B: Body, G: Send + 'static>(
    response: Response<B>,
    guard: G,
) -> Response<ResponseBody<B>> {
    response.map(|body| ResponseBody::holding(body, guard))
}

pin_project! {
    /// The body of a response, which releases the permit when it ends. [`hold`] makes a body that keeps another value
    /// until it ends.
    ///
    /// Frames, trailers and size are those of the inner body. The body ends when the inner body reports its end after a
    /// frame, returns trailers or no more frames, fails, or is dropped. A body of a single frame ends as soon as a
    /// server has taken that frame, however slowly the client reads it.
    ///
    /// Over Redis, if the key is full, the layer polls the body once before it returns the response, and keeps that
    /// frame. If the body ends in this frame, its permit is released then.
    ///
    /// # Errors
    ///
    /// Those of the inner body, boxed. Under [`OnLost::Abort`](crate::OnLost::Abort) a body whose permit is lost ends
    /// with a [`PermitLost`](crate::PermitLost). If the response is gRPC, the body ends with trailers that contain
    /// `grpc-status` 14 instead.
    pub struct ResponseBody<B> {
        #[pin]
        inner: Inner<B>,
        guard: Option<Guard>,
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
        Self::guarded(body, guard.map(Guard::Permit))
    }

    /// A body that keeps `guard` until it ends, for example a [`Permit`] that a handler has acquired. If the body has
    /// ended already, `guard` is dropped at once.
    ///
    /// # Examples
    ///
    /// See [`hold`], which does this for a whole response.
    pub fn holding(body: B, guard: impl Send + 'static) -> Self {
        Self::guarded(body, Some(Guard::any(guard)))
    }

    fn guarded(body: B, guard: Option<Guard>) -> Self {
        Self {
            guard: guard.filter(|_| !body.is_end_stream()),
            inner: Inner::Body { body },
        }
    }

    /// Polls the body once, before the response's head is returned. Also returns the permit if the body has ended and
    /// nothing else holds the permit. The caller should release it.
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
            guard: permit.is_none().then_some(Guard::Permit(guard)),
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
    fn poll_inner(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PolledFrame> {
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

/// The inner body's default, without a permit. Layers outside of the limit need it to create responses, such as
/// tower-http's `TimeoutLayer` and `CorsLayer`.
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
            .field("holds_guard", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}
