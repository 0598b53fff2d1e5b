//! Services to put under the layer.

use bytes::Bytes;
use futures_util::{
    future::join_all,
    stream::{self, BoxStream, StreamExt},
};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use std::{
    convert::Infallible,
    fmt::Debug,
    future::{Ready, ready},
    time::Duration,
};
use testing::in_flight::{InFlight, One};
use tokio::{task::yield_now, time::timeout};
use tower::{Layer, Service, ServiceExt, service_fn, util::ServiceFn};
use tower_semaphore::{
    GlobalConcurrencyLimit, GlobalConcurrencyLimitLayer, ResponseBody, Semaphore,
};
use tower_test::mock::Spawn;

/// Generous, because no test that uses it measures time.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

type Answered = Ready<Result<Response<Full<Bytes>>, Infallible>>;
pub(crate) type OkService = ServiceFn<fn(Request<String>) -> Answered>;

/// A response that holds its permit until its body is read or dropped.
pub(crate) type Answer = Response<ResponseBody<Full<Bytes>>>;

/// A limited service in a mock task that records wake-ups.
pub(crate) type Limited = Spawn<GlobalConcurrencyLimit<OkService>>;

/// Answers every request with the same two bytes.
pub(crate) fn ok() -> OkService {
    service_fn(|_| ready(Ok(Response::new("ok".into()))))
}

/// A layer that admits one request at a time for `host`.
pub(crate) fn one(semaphore: impl Semaphore) -> GlobalConcurrencyLimitLayer {
    GlobalConcurrencyLimitLayer::new(1, "host", semaphore)
}

pub(crate) fn limited(layer: &GlobalConcurrencyLimitLayer) -> Limited {
    Spawn::new(layer.layer(ok()))
}

/// Polls a service once. Returns true if it is ready.
pub(crate) fn is_ready(service: &mut Limited) -> bool {
    match service.poll_ready() {
        std::task::Poll::Ready(Ok(())) => true,
        std::task::Poll::Pending => false,
    }
}

/// Calls a service that must be ready.
pub(crate) async fn call(service: &mut Limited) -> Answer {
    assert!(is_ready(service));
    let Ok(answer) = service.call(Request::new(String::new())).await;
    answer
}

/// Reads a body to its end.
pub(crate) async fn read<B>(response: Response<B>) -> Bytes
where
    B: Body<Data = Bytes, Error: Debug>,
{
    let body = response.into_body().collect().await;
    body.expect("a body that ends well").to_bytes()
}

/// Sends a request to each service at the same time and waits for the ends of all bodies.
pub(crate) async fn all_served<S, B>(services: Vec<S>)
where
    S: Service<Request<String>, Response = Response<B>, Error: Debug + Send, Future: Send>,
    S: Send + 'static,
    B: Body<Data = Bytes, Error: Debug> + Send + 'static,
{
    let requests = services.into_iter().map(|service| {
        tokio::spawn(async move {
            read(
                service
                    .oneshot(Request::new(String::new()))
                    .await
                    .expect("an answer"),
            )
            .await
        })
    });
    let served = timeout(BOUND, join_all(requests)).await;
    for body in served.expect("all are served in time") {
        assert_eq!(body.expect("no panic"), "frameframeframe");
    }
}

/// A body of a few frames, counted by a witness.
pub(crate) type Frames = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// Answers with a body that takes a while. The witness counts each request from its call to the end of its body.
pub(crate) fn watched(
    witness: &InFlight,
) -> impl Service<Request<String>, Response = Response<Frames>, Error = Infallible, Future: Send>
+ Clone
+ use<> {
    let witness = witness.clone();
    service_fn(move |_| {
        let inside = witness.begin();
        async move {
            yield_now().await;
            Ok(Response::new(StreamBody::new(frames(inside))))
        }
    })
}

fn frames(inside: One) -> BoxStream<'static, Result<Frame<Bytes>, Infallible>> {
    let frames = stream::unfold((inside, 3), |(inside, left)| async move {
        yield_now().await;
        let frame = Ok(Frame::data(Bytes::from_static(b"frame")));
        (left > 0).then(|| (frame, (inside, left - 1)))
    });
    frames.boxed()
}
