//! The body of a request. The request's permit ends if the client stalls while it sends.

use crate::{
    background::{Bounded, Countdown},
    observe::LostBy,
    semaphore::Permit,
    timer,
};
use bytes::Buf;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

/// The number of bytes after which a client's stall time starts again at 0.
const PROGRESS: usize = 1_024;

pin_project! {
    /// A request's body. The request's permit ends if the client stalls for longer than
    /// [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall) allows.
    ///
    /// Frames, errors and size are those of the inner body. With the feature `axum` the layer wraps axum's bodies
    /// itself. The layer cannot replace bodies of other types, such as tonic's or hyper's `Incoming`. For these, put
    /// [`watch`](Self::watch) between the limit and the service.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response};
    /// use http_body_util::BodyExt;
    /// use hyper::body::Incoming;
    /// use std::{convert::Infallible, time::Duration};
    /// use tower::ServiceBuilder;
    /// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, OnLost, RequestBody, key};
    ///
    /// async fn upload(request: Request<RequestBody<Incoming>>) -> Result<Response<String>, Infallible> {
    ///     let read = request.into_body().collect().await;
    ///     Ok(Response::new(format!("{:?}", read.map(|body| body.to_bytes().len()))))
    /// }
    ///
    /// let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new())
    ///     .with_max_stall(Duration::from_secs(30))
    ///     .with_on_lost(OnLost::Abort);
    /// let service = ServiceBuilder::new()
    ///     .layer(limit)
    ///     .map_request(RequestBody::<Incoming>::watch)
    ///     .service_fn(upload);
    /// # drop(service);
    /// ```
    pub struct RequestBody<B> {
        #[pin]
        body: B,
        uploads: Uploads,
    }
}

impl<B> RequestBody<B> {
    /// Wraps the body of a request, so that the limits outside watch it if they have a longest stall. A limit that
    /// watches it already watches it only once. See [`RequestBody`] for an example.
    pub fn watch(mut request: Request<B>) -> Request<Self> {
        let uploads = request.extensions_mut().remove::<Uploads>();
        let uploads = uploads.unwrap_or_default();
        request.map(|body| Self { body, uploads })
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    /// # Panics
    ///
    /// If it has to wait for the client outside of a Tokio runtime.
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        this.uploads.note_poll(match &polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(frame) => Poll::Ready(length(frame.as_ref())),
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The number of bytes in a frame: 0 for trailers, for an error and at the end of the body.
fn length<D: Buf, E>(frame: Option<&Result<Frame<D>, E>>) -> usize {
    let data = frame.and_then(|frame| frame.as_ref().ok()?.data_ref());
    data.map_or(0, Buf::remaining)
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

/// The watchers of a body, one for each limit. The request's extensions contain those that do not watch it yet.
#[derive(Clone, Default)]
struct Uploads(Vec<Weak<Upload>>);

impl Uploads {
    /// Reports a poll of the body, and the number of bytes that it returned.
    fn note_poll(&self, received: Poll<usize>) {
        for upload in self.0.iter().filter_map(Weak::upgrade) {
            match received {
                Poll::Pending => upload.wait(),
                Poll::Ready(bytes) => upload.receive(bytes),
            }
        }
    }
}

/// Ends the permit of a request whose client stalls. Dropped with the response's head.
///
/// A handler polls the body when it needs more data. The client stalls if the handler's waits since the last progress
/// add up to the longest stall. While the body is not polled, it waits for the handler, so this time does not count.
pub(crate) struct Upload {
    permit: Permit,
    max_stall: Duration,
    progress: Mutex<UploadProgress>,
}

/// The bytes that were received, and the waits, since [`PROGRESS`] bytes were last complete.
#[derive(Default)]
struct UploadProgress {
    bytes: usize,
    /// The time that the handler has waited, without the current wait.
    waited: Duration,
    /// The time at which the current wait began, in [nanoseconds](timer::nanos).
    since: Option<i64>,
    /// Started by the first wait, because most requests are read without a wait.
    countdown: Option<Countdown>,
}

impl Upload {
    /// Watches the body of a request, or leaves it to [`RequestBody::watch`] through the request's extensions.
    pub(crate) fn watch<B: 'static>(
        request: &mut Request<B>,
        permit: &Permit,
        max_stall: Duration,
    ) -> Arc<Self> {
        let upload = Arc::new(Self {
            permit: permit.clone(),
            max_stall,
            progress: Mutex::default(),
        });
        let watched = Arc::downgrade(&upload);
        if let Some(watched) = wrap_axum_body(request.body_mut(), watched) {
            let uploads = request.extensions_mut().get_or_insert_default::<Uploads>();
            uploads.0.push(watched);
        }
        upload
    }

    /// Notes that the handler waits for the client.
    fn wait(self: &Arc<Self>) {
        let mut progress = self.progress.lock();
        progress.since.get_or_insert_with(timer::nanos);
        let start = || Countdown::start(Arc::downgrade(self), self.max_stall);
        progress.countdown.get_or_insert_with(start);
    }

    /// Notes that the handler has received this number of bytes, or the end of the body.
    fn receive(&self, bytes: usize) {
        let mut progress = self.progress.lock();
        progress.waited = progress.waited();
        progress.since = None;
        progress.bytes = progress.bytes.saturating_add(bytes);
        if progress.bytes >= PROGRESS {
            (progress.bytes, progress.waited) = (0, Duration::ZERO);
        }
    }
}

impl UploadProgress {
    /// The time that the handler has waited, including the current wait.
    fn waited(&self) -> Duration {
        let now = self.since.map(|since| timer::nanos().saturating_sub(since));
        let nanos = now.unwrap_or_default().max(0).unsigned_abs();
        self.waited + Duration::from_nanos(nanos)
    }
}

impl Bounded for Upload {
    fn left(&self) -> Duration {
        let progress = self.progress.lock();
        match progress.since {
            None => self.max_stall,
            Some(_) => self.max_stall.saturating_sub(progress.waited()),
        }
    }

    fn end(&self) {
        self.permit.end(LostBy::Bound);
    }
}

/// Wraps an axum body, which can hold a body of any type. Returns the upload if the body has another type.
#[cfg(feature = "axum")]
fn wrap_axum_body<B: 'static>(body: &mut B, upload: Weak<Upload>) -> Option<Weak<Upload>> {
    let body: &mut dyn std::any::Any = body;
    let Some(body) = body.downcast_mut::<axum::body::Body>() else {
        return Some(upload);
    };
    if !body.is_end_stream() {
        let uploads = Uploads(vec![upload]);
        let inner = std::mem::take(body);
        *body = axum::body::Body::new(RequestBody {
            body: inner,
            uploads,
        });
    }
    None
}

#[cfg(not(feature = "axum"))]
fn wrap_axum_body<B>(_: &mut B, upload: Weak<Upload>) -> Option<Weak<Upload>> {
    Some(upload)
}
