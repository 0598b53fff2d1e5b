//! What a body keeps until it ends.

use super::{
    ResponseBody,
    guard::{BoxError, PermitGuard, Step},
};
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use std::task::{Context, Poll};

/// Keeps a value until a response's body ends: a [`Permit`](crate::Permit) that a handler has acquired, a span, a counter
/// of requests in flight.
///
/// The guard is dropped when the body ends, fails or is dropped: see [`ResponseBody`]. So a client that hangs up ends it
/// too. If the body has ended already, the guard is dropped at once. The loss of a permit does not end the body.
///
/// # Panics
///
/// A panic of the guard's `Drop` reaches whoever polls or drops the body.
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
///     let upstream = Claim::new("upstream-1").with_limit(8);
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
/// let full = Claim::new("upstream-1").with_limit(1);
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

/// The guard of a body.
pub(super) enum Guard {
    Permit(PermitGuard),
    /// Only dropped. The lock makes the body `Sync`, and is never taken.
    Any {
        _guard: Mutex<Box<dyn Send>>,
    },
}

impl Guard {
    pub(super) fn any(guard: impl Send + 'static) -> Self {
        Self::Any {
            _guard: Mutex::new(Box::new(guard)),
        }
    }

    /// See [`PermitGuard::poll_lost`].
    pub(super) fn poll_lost(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Frame<Bytes>, BoxError>> {
        match self {
            Self::Permit(guard) => guard.poll_lost(cx),
            Self::Any { .. } => Poll::Pending,
        }
    }

    /// See [`PermitGuard::polled`].
    pub(super) fn polled(&mut self, answer: &Poll<Step>) {
        if let Self::Permit(guard) = self {
            guard.polled(answer);
        }
    }
}
