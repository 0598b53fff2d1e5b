//! How the layer drains the body of a refused request.
//!
//! Promises: P21.

use super::rig::{ok, send, values};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use std::{
    convert::Infallible,
    future::ready,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use testing::{
    http_requests::{limit, request},
    wait::eventually,
};
use tokio::{runtime::Handle, time::Instant};
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{
    ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, MemorySemaphore, ResponseBody, key::Header,
};

/// An upload that counts its frames as they are read.
struct Upload {
    /// The number of frames that are left.
    frames: u64,
    /// The content of each frame.
    frame: Bytes,
    /// The length in bytes, if the client declares it.
    length: Option<u64>,
    end: End,
    /// The number of frames that were read. The test has the second clone.
    read: Arc<AtomicU64>,
}

/// How the body ends after its last frame.
#[derive(Clone, Copy)]
enum End {
    Complete,
    Error,
    /// The client sends nothing more and keeps the connection.
    Stall,
}

impl Upload {
    fn with_frames(frames: u64) -> Self {
        Self {
            frames,
            frame: Bytes::from_static(&[0; 1_000]),
            length: None,
            end: End::Complete,
            read: Arc::default(),
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.frames > 0 {
            self.frames -= 1;
            self.read.fetch_add(1, Relaxed);
            return Poll::Ready(Some(Ok(Frame::data(self.frame.clone()))));
        }
        match self.end {
            End::Complete => Poll::Ready(None),
            End::Error => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            End::Stall => Poll::Pending,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

type Answer = Response<ResponseBody<Full<Bytes>>>;

/// A layer that refuses every request.
fn full() -> ConcurrencyLimitLayer<Header> {
    limit(0, MemorySemaphore::new())
}

async fn refused(layer: &ConcurrencyLimitLayer<Header>, request: Request<Upload>) -> Answer {
    let inner = service_fn(|_| ready(Ok::<_, Infallible>(Response::new(Full::default()))));
    let Ok(answer) = layer.layer(inner).oneshot(request).await;
    assert_eq!(answer.status(), 429);
    answer
}

fn post(upload: Upload) -> Request<Upload> {
    request::<String>("alice").map(|_| upload)
}

/// Waits until the upload has been dropped, which takes 30 s by the paused clock if it stalls. Returns how many of its
/// frames were read.
async fn frames_read(read: Arc<AtomicU64>) -> u64 {
    let is_dropped = async || Arc::strong_count(&read) == 1;
    eventually(
        "the upload is dropped",
        Duration::from_secs(100),
        is_dropped,
    )
    .await;
    read.load(Relaxed)
}

/// Has the request refused. Returns how many frames of its upload were read.
async fn frames_drained(layer: &ConcurrencyLimitLayer<Header>, request: Request<Upload>) -> u64 {
    let read = Arc::clone(&request.body().read);
    refused(layer, request).await;
    frames_read(read).await
}

#[tokio::test]
async fn an_upload_is_read_to_its_end() {
    let read = frames_drained(&full(), post(Upload::with_frames(100))).await;
    assert_eq!(read, 100);
}

#[tokio::test]
async fn an_upload_to_a_global_limit_is_read_to_its_end() {
    let layer = GlobalConcurrencyLimitLayer::new(0, "all", MemorySemaphore::new());
    let upload = Upload::with_frames(100);
    let read = Arc::clone(&upload.read);
    let inner = service_fn(|_| ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))));
    let Ok(answer) = layer.layer(inner).oneshot(post(upload)).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(frames_read(read).await, 100);
}

#[tokio::test]
async fn nothing_is_read_unless_it_helps_the_client() {
    // Over HTTP/2 a client sees the response although its upload was not read.
    let mut http2 = post(Upload::with_frames(100));
    *http2.version_mut() = Version::HTTP_2;
    // This client sends its upload only after a `100 Continue`.
    let mut waiting = post(Upload::with_frames(100));
    let expected = HeaderValue::from_static("100-continue");
    waiting.headers_mut().insert("expect", expected);
    // This process itself sends the request: its URI names the host, and no header does.
    let mut sent = post(Upload::with_frames(100));
    *sent.uri_mut() = "http://example.org/".parse().expect("a URI");
    for request in [http2, waiting, sent] {
        assert_eq!(frames_drained(&full(), request).await, 0);
    }
    let off = full().with_max_drain(0, Duration::from_secs(60));
    assert_eq!(
        frames_drained(&off, post(Upload::with_frames(100))).await,
        0
    );
}

#[tokio::test]
async fn an_upload_whose_uri_is_absolute_as_for_a_proxy_is_read() {
    let mut proxied = post(Upload::with_frames(100));
    *proxied.uri_mut() = "http://example.org/".parse().expect("a URI");
    let host = HeaderValue::from_static("example.org");
    proxied.headers_mut().insert("host", host);
    assert_eq!(frames_drained(&full(), proxied).await, 100);
}

#[test]
fn outside_of_a_runtime_nothing_is_read() {
    let upload = Upload::with_frames(100);
    let read = Arc::clone(&upload.read);
    let layer = full();
    let answer = refused(&layer, post(upload)).now_or_never();
    assert!(answer.is_some());
    assert_eq!((Arc::strong_count(&read), read.load(Relaxed)), (1, 0));
}

#[tokio::test]
async fn a_refusal_without_an_upload_starts_no_task() {
    let service = full().layer(ok());
    // Its body is empty.
    send(&service, request("alice")).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_read_up_to_the_bound_and_its_connection_stays_for_two_seconds() {
    let layer = full().with_max_drain(10_500, Duration::from_secs(60));
    let start = Instant::now();
    let read = frames_drained(&layer, post(Upload::with_frames(100))).await;
    // With the eleventh frame of 1,000 bytes the upload is above the bound.
    assert_eq!(read, 11);
    let seconds = start.elapsed().as_secs_f64();
    assert!((2.0..2.1).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_whose_length_is_above_the_bound_is_not_read_and_its_connection_closes() {
    let layer = full().with_max_drain(10_500, Duration::from_secs(60));
    let start = Instant::now();
    let upload = Upload {
        length: Some(10_501),
        ..Upload::with_frames(100)
    };
    let read = Arc::clone(&upload.read);
    let answer = refused(&layer, post(upload)).await;
    assert_eq!(values(&answer, "connection"), ["close"]);
    assert_eq!(frames_read(read).await, 0);
    let seconds = start.elapsed().as_secs_f64();
    assert!((2.0..2.1).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn the_connection_of_an_upload_that_is_read_is_kept() {
    let layer = full().with_max_drain(100_000, Duration::from_secs(60));
    let upload = Upload {
        length: Some(100_000),
        ..Upload::with_frames(100)
    };
    let answer = refused(&layer, post(upload)).await;
    assert!(values(&answer, "connection").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_stalls_is_dropped_after_30_seconds() {
    let start = Instant::now();
    let upload = Upload {
        end: End::Stall,
        ..Upload::with_frames(5)
    };
    assert_eq!(frames_drained(&full(), post(upload)).await, 5);
    let seconds = start.elapsed().as_secs_f64();
    assert!((30.0..30.1).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn an_upload_that_fails_or_consists_of_empty_frames_is_not_read_for_ever() {
    let failed = Upload {
        end: End::Error,
        ..Upload::with_frames(5)
    };
    assert_eq!(frames_drained(&full(), post(failed)).await, 5);
    let layer = full().with_max_drain(1_000, Duration::from_secs(60));
    // An empty frame counts as one byte, so one more than the bound are read.
    let empty = Upload {
        frame: Bytes::new(),
        ..Upload::with_frames(1_000_000)
    };
    assert_eq!(frames_drained(&layer, post(empty)).await, 1_001);
}
