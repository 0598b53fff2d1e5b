//! Slow uploads.
//!
//! Promises: P23.

use super::rig::{MARGIN, MAX_STALL};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use std::{convert::Infallible, time::Duration};
use testing::http_requests::{ACCOUNT, limit};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneService};
use tower_semaphore::{
    ConcurrencyLimitLayer, MemorySemaphore, OnLost, ReleaseAt, RequestBody, key,
};

/// A client that sends this number of bytes within the longest stall makes progress.
const KIBIBYTE: usize = 1_024;

type Upload = StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>;

type Limited = BoxCloneService<Request<Upload>, Response<BoxBody<Bytes, String>>, Infallible>;

/// A layer under which a client that stalls for `MAX_STALL` loses its permit, and its request is aborted.
fn impatient(memory: &MemorySemaphore) -> ConcurrencyLimitLayer<key::Header> {
    let layer = limit(1, memory.clone()).with_max_stall(MAX_STALL);
    layer.with_on_lost(OnLost::Abort)
}

/// A request whose body sends, for each pause and length, a chunk of that length after that pause.
fn upload(
    chunks: impl IntoIterator<Item = (Duration, usize), IntoIter: Send> + Send + 'static,
) -> Request<Upload> {
    let (sender, frames) = mpsc::channel(1);
    tokio::spawn(async move {
        for (pause, length) in chunks {
            sleep(pause).await;
            let frame = Frame::data(vec![b'.'; length].into());
            if sender.send(Ok(frame)).await.is_err() {
                return;
            }
        }
    });
    let request = Request::post("/").header(ACCOUNT, "alice");
    let body = StreamBody::new(ReceiverStream::new(frames));
    request.body(body).expect("a request")
}

/// Reads the whole body and answers with its length. Pauses before the first read and after each frame.
async fn read<B>(request: Request<B>, pause: Duration) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let mut body = std::pin::pin!(request.into_body());
    let mut length = 0;
    sleep(pause).await;
    while let Some(frame) = body.frame().await {
        length += frame.expect("no error").into_data().expect("data").len();
        sleep(pause).await;
    }
    Ok(Response::new(length.to_string().into()))
}

/// The reading service, once with this crate's wrapper around the request's body and once with axum's body, which needs
/// no wrapper.
fn services(layer: &ConcurrencyLimitLayer<key::Header>, pause: Duration) -> Vec<Limited> {
    let watched = ServiceBuilder::new()
        .layer(layer.clone())
        .map_request(RequestBody::watch)
        .service_fn(move |request: Request<RequestBody<Upload>>| read(request, pause));
    #[cfg(not(feature = "axum"))]
    return vec![boxed(watched)];
    #[cfg(feature = "axum")]
    {
        let in_place = ServiceBuilder::new()
            .map_request(|request: Request<Upload>| request.map(axum::body::Body::new))
            .layer(layer.clone())
            .service_fn(move |request: Request<axum::body::Body>| read(request, pause));
        vec![boxed(watched), boxed(in_place)]
    }
}

fn boxed<S, B>(service: S) -> Limited
where
    S: Service<Request<Upload>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error: ToString> + Send + Sync + 'static,
{
    let text = |response: Response<B>| {
        response.map(|body| body.map_err(|error| error.to_string()).boxed())
    };
    BoxCloneService::new(service.map_response(text))
}

/// The status of a response, its text, and how long the request took.
fn outcome(
    service: &Limited,
    request: Request<Upload>,
) -> impl Future<Output = (u16, Bytes, Duration)> + Send + use<> {
    let service = service.clone();
    async move {
        let start = Instant::now();
        let answer = timeout(1_000 * MAX_STALL, service.oneshot(request)).await;
        let answer = answer.expect("in time").expect("infallible");
        let (status, took) = (answer.status().as_u16(), start.elapsed());
        let body = answer.into_body().collect().await.expect("it is whole");
        (status, body.to_bytes(), took)
    }
}

/// Asserts equality within a timer's granularity.
fn assert_about(took: Duration, expected: Duration) {
    assert!(
        took >= expected && took < expected + MARGIN,
        "{took:?}, not {expected:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_or_too_little_loses_its_permit_after_the_longest_stall() {
    let second = Duration::from_secs(1);
    for pause in [Duration::MAX, second, MAX_STALL / 3] {
        let memory = MemorySemaphore::new();
        for service in services(&impatient(&memory), Duration::ZERO) {
            let chunks = std::iter::repeat((pause, 1));
            let (status, _, took) = outcome(&service, upload(chunks)).await;
            assert_eq!((status, memory.busy_keys()), (503, 0));
            assert_about(took, MAX_STALL);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stalls_after_it_has_sent_much_loses_its_permit() {
    let memory = MemorySemaphore::new();
    let (second, much) = (Duration::from_secs(1), 1 << 20);
    for service in services(&impatient(&memory), Duration::ZERO) {
        let chunks = [(second, much), (second, much), (Duration::MAX, 1)];
        let (status, _, took) = outcome(&service, upload(chunks)).await;
        assert_eq!(status, 503);
        assert_about(took, 2 * second + MAX_STALL);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_a_kibibyte_in_each_longest_stall_keeps_its_permit() {
    let memory = MemorySemaphore::new();
    let whole = [(MAX_STALL - MARGIN, KIBIBYTE); 10];
    let halves = [(MAX_STALL / 2 - MARGIN, KIBIBYTE / 2); 20];
    for chunks in [whole.to_vec(), halves.to_vec()] {
        for service in services(&impatient(&memory), Duration::ZERO) {
            let (status, text, _) = outcome(&service, upload(chunks.clone())).await;
            assert_eq!((status, &*text), (200, &b"10240"[..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_the_handler_does_not_read_does_not_count() {
    let memory = MemorySemaphore::new();
    for service in services(&impatient(&memory), 3 * MAX_STALL) {
        let chunks = [(Duration::from_secs(1), 1); 10];
        let (status, text, took) = outcome(&service, upload(chunks)).await;
        assert_eq!((status, &*text), (200, &b"10"[..]));
        // The handler pauses for three stalls after each of ten chunks.
        assert!(took > 30 * MAX_STALL, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_the_handler_goes_on_without_its_permit() {
    let memory = MemorySemaphore::new();
    for service in services(
        &impatient(&memory).with_on_lost(OnLost::Finish),
        Duration::ZERO,
    ) {
        let late = 2 * MAX_STALL;
        let first = tokio::spawn({
            let service = service.clone();
            async move { outcome(&service, upload([(late, 1)])).await }
        });
        sleep(MAX_STALL + MARGIN).await;
        assert_eq!(memory.busy_keys(), 0);
        let (status, ..) = outcome(&service, upload([(Duration::ZERO, 1)])).await;
        assert_eq!(status, 200);
        let (status, text, took) = first.await.expect("no panic");
        assert_eq!((status, &*text), (200, &b"1"[..]));
        assert_about(took, late);
    }
}

#[tokio::test(start_paused = true)]
async fn under_release_at_head_a_permit_is_lost_in_the_same_way() {
    let memory = MemorySemaphore::new();
    for service in services(
        &impatient(&memory).with_release(ReleaseAt::Head),
        Duration::ZERO,
    ) {
        let (status, ..) = outcome(&service, upload([(Duration::MAX, 1)])).await;
        assert_eq!(status, 503);
    }
}

/// Answers at once with the request's own body.
fn echo<B>(request: Request<B>) -> BoxFuture<'static, Result<Response<B>, Infallible>>
where
    B: Send + 'static,
{
    Box::pin(async { Ok(Response::new(request.into_body())) })
}

#[tokio::test(start_paused = true)]
async fn after_the_head_the_client_may_be_quiet() {
    let memory = MemorySemaphore::new();
    let service = ServiceBuilder::new()
        .layer(impatient(&memory))
        .map_request(RequestBody::watch)
        .service(service_fn(echo::<RequestBody<Upload>>));
    let quiet = upload([(Duration::ZERO, 1), (10 * MAX_STALL, 1)]);
    let answer = service.oneshot(quiet).await.expect("infallible");
    let body = answer.into_body().collect().await.expect("it is whole");
    assert_eq!(body.to_bytes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_outlives_its_request_holds_no_permit() {
    let (memory, (sender, mut bodies)) = (MemorySemaphore::new(), mpsc::unbounded_channel());
    let service = ServiceBuilder::new()
        .layer(impatient(&memory))
        .map_request(RequestBody::watch)
        .service_fn(move |request: Request<RequestBody<Upload>>| {
            drop(sender.send(request.into_body()));
            async { Ok::<_, Infallible>(Response::new(Full::from("later"))) }
        });
    let answer = service.oneshot(upload([(MAX_STALL * 2, 1)])).await;
    drop(answer.expect("infallible"));
    assert_eq!(memory.busy_keys(), 0);
    let body = bodies.recv().await.expect("a body");
    assert_eq!(body.collect().await.expect("no error").to_bytes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_wrapper_inside_of_nested_limits_watches_for_all_of_them() {
    let (outer, inner) = (MemorySemaphore::new(), MemorySemaphore::new());
    let layer = |memory| impatient(memory).with_on_lost(OnLost::Finish);
    let service = ServiceBuilder::new()
        .layer(layer(&outer))
        .layer(layer(&inner).with_policy("route"))
        .map_request(RequestBody::watch)
        .service_fn(async |request: Request<RequestBody<Upload>>| {
            read(request, Duration::ZERO).await
        });
    let service = boxed(service);
    let request =
        tokio::spawn(async move { outcome(&service, upload([(Duration::MAX, 1)])).await });
    sleep(MAX_STALL / 2).await;
    assert_eq!((outer.busy_keys(), inner.busy_keys()), (1, 1));
    sleep(MAX_STALL).await;
    assert_eq!((outer.busy_keys(), inner.busy_keys()), (0, 0));
    request.abort();
}

#[tokio::test]
async fn a_watched_body_is_unchanged_also_without_a_limit() {
    let request = Request::new(Full::<Bytes>::from("whole"));
    let body = RequestBody::watch(request).into_body();
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(5));
    assert_eq!(body.collect().await.expect("no error").to_bytes(), "whole");
    assert!(
        RequestBody::watch(Request::new(Full::<Bytes>::default()))
            .body()
            .is_end_stream()
    );
}
