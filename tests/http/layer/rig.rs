//! Services to put under the layer, and helpers to call them.

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;
use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    time::Duration,
};
use testing::http_requests::limit;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{AcquireError, MemorySemaphore, Permit, ResponseBody, Semaphore};

/// The longest stall of a client in tests that time stalls.
pub(crate) const MAX_STALL: Duration = Duration::from_secs(30);

/// Longer than one tick of Tokio's clock.
pub(crate) const MARGIN: Duration = Duration::from_millis(5);

/// A response of a limited service. It holds its permit until its body is read or dropped.
pub(crate) type Answer = Response<ResponseBody<Full<Bytes>>>;

type Answered = Ready<Result<Response<Full<Bytes>>, Infallible>>;

/// Answers every request with the same two bytes.
pub(crate) fn ok()
-> impl Service<Request<String>, Response = Response<Full<Bytes>>, Error = Infallible, Future = Answered>
+ Clone {
    service_fn(|_| ready(Ok(Response::new("ok".into()))))
}

pub(crate) type Stalled = StreamBody<stream::Pending<Result<Frame<Bytes>, Infallible>>>;

/// Answers with a body that yields no frame and never ends.
pub(crate) fn stalled()
-> impl Service<Request<String>, Response = Response<Stalled>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|_| ready(Ok(Response::new(StreamBody::new(stream::pending())))))
}

/// Sends a request to a clone of `service`, as a server does.
pub(crate) async fn send<S, T>(service: &S, request: Request<String>) -> T
where
    S: Service<Request<String>, Response = T, Error = Infallible> + Clone,
{
    let Ok(answer) = service.clone().oneshot(request).await;
    answer
}

/// The answer of a service whose limit of 1 per account is counted by `semaphore`.
pub(crate) async fn answer(semaphore: impl Semaphore, request: Request<String>) -> Answer {
    send(&limit(1, semaphore).layer(ok()), request).await
}

/// The answer to an account's second request, which is over its limit of 1.
pub(crate) async fn refused(request: Request<String>) -> Answer {
    let service = limit(1, MemorySemaphore::new()).layer(ok());
    let _first = send(&service, request.clone()).await;
    send(&service, request).await
}

/// The error with which a request was refused.
pub(crate) fn error(answer: &Answer) -> &AcquireError {
    let error = answer.extensions().get();
    error.expect("a refusal has a reason")
}

/// A slot in which a handler stores its permit.
pub(crate) type Held = Arc<Mutex<Option<Permit>>>;

/// Takes the permit that a handler has stored.
pub(crate) fn take(held: &Held) -> Permit {
    let permit = held.lock().expect("no panic").take();
    permit.expect("a permit in the request")
}

/// The statuses of `requests`, all in flight at once.
pub(crate) async fn statuses<S, B>(
    service: &S,
    requests: impl IntoIterator<Item = Request<String>>,
) -> Vec<u16>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let mut in_flight = Vec::new();
    for request in requests {
        in_flight.push(send(service, request).await);
    }
    let status = |answer: &Response<B>| answer.status().as_u16();
    in_flight.iter().map(status).collect()
}

/// The problem (RFC 9457) in a response. Its status must equal the response's.
pub(crate) async fn problem(answer: Answer) -> Value {
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let status = answer.status();
    let bytes = answer
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let problem: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(problem["status"], status.as_u16());
    problem
}

/// All values of a header, one per line.
pub(crate) fn values<B>(answer: &Response<B>, field: &str) -> Vec<String> {
    let lines = answer.headers().get_all(field).iter();
    lines
        .map(|value| value.to_str().expect("visible ASCII").to_owned())
        .collect()
}

/// True if the response reports that the limit was reached.
pub(crate) fn is_refused<B>(answer: &Response<B>) -> bool {
    answer.status() == StatusCode::TOO_MANY_REQUESTS
}
