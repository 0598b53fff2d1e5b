//! The client of one host pauses the host's key when a response's `Retry-After` asks for it.
//!
//! Promises: P17.

use super::inner::one;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use std::{convert::Infallible, future::ready, time::Duration};
use testing::pausing::PauseRecorder;
use tower::{Layer, ServiceExt, service_fn};

/// The longest pause that the layer makes.
const MAX: Duration = Duration::from_secs(300);

fn busy(_: Request<String>) -> std::future::Ready<Result<Response<Full<Bytes>>, Infallible>> {
    let response = Response::builder().status(503).header("retry-after", "30");
    ready(Ok(response.body(Full::default()).expect("a response")))
}

#[tokio::test]
async fn a_host_that_asks_for_it_is_paused() {
    let store = PauseRecorder::prompt();
    let layer = one(store.clone()).with_cooldown("concurrency", MAX);
    let service = layer.layer(service_fn(busy));
    let Ok(answer) = service.oneshot(Request::new(String::new())).await;
    assert_eq!(answer.status(), 503);
    let pauses = store.pauses();
    assert_eq!(pauses.len(), 1);
    assert_eq!(pauses[0].key, "host");
    assert_eq!(pauses[0].time, Duration::from_secs(30));
    assert_eq!(pauses[0].note, "503 with Retry-After: 30");
}
