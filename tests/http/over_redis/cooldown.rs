//! A response's `Retry-After` pauses a key for all processes.
//!
//! Promises: P17.

use super::{BOUND, store};
use crate::layer::rig::{ok, send, values};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::{convert::Infallible, future::ready, time::Duration};
use testing::{
    http_requests::{limit, request},
    redis::RedisServer,
    wait::{eventually, within},
};
use tokio::time::Instant;
use tower::{Layer, service_fn};
use tower_semaphore::{AcquireError, Operate, Policy};

/// The longest pause that the layers make.
const MAX: Duration = Duration::from_secs(300);

/// An upstream that answers 429 with this `Retry-After`.
fn busy(
    seconds: &'static str,
) -> impl tower::Service<
    Request<String>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone {
    service_fn(move |_| {
        let response = Response::builder()
            .status(429)
            .header("retry-after", seconds);
        ready(Ok(response.body(Full::default()).expect("a response")))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_refuses_at_once_and_operators_see_why() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let client = limit(1, ours.clone()).with_cooldown("concurrency", MAX);
    let answer = send(&client.layer(busy("30")), request("a")).await;
    assert_eq!(answer.status(), 429);
    let error = answer.extensions().get::<AcquireError>();
    assert!(error.is_none(), "the upstream answers, not the layer");
    drop(answer);
    // On a busy machine the response may arrive before the pause is confirmed.
    let pause = async || {
        let usage = other.usage(&Policy::DEFAULT, &"a".into()).await;
        usage.expect("it answers").pause
    };
    eventually("it is paused", BOUND, async || pause().await.is_some()).await;

    let refused = send(&limit(1, other.clone()).layer(ok()), request("a")).await;
    let error = refused.extensions().get::<AcquireError>();
    assert!(
        matches!(error, Some(AcquireError::Paused { .. })),
        "{error:?}"
    );
    let rest: u64 = values(&refused, "retry-after")[0].parse().expect("seconds");
    assert!((1..=30).contains(&rest), "{rest}");
    let pause = pause().await.expect("it is paused");
    assert_eq!(pause.note.as_deref(), Some("429 with Retry-After: 30"));
    assert_eq!(
        pause.until.duration_since(pause.since).expect("it ends"),
        Duration::from_secs(30)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_are_served_when_the_pause_is_over() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let client = limit(1, ours).with_cooldown("concurrency", MAX);
    let begun = Instant::now();
    drop(send(&client.layer(busy("1")), request("a")).await);
    let waiting = limit(1, other).with_wait(BOUND).layer(ok());
    let served = join_all((0..3).map(async |_| {
        let answer = send(&waiting, request("a")).await;
        let status = answer.status();
        answer.into_body().collect().await.expect("a body");
        (status.as_u16(), begun.elapsed())
    }));
    for (status, after) in within("they are served", BOUND, served).await {
        assert_eq!(status, 200);
        // The pause lasts 1 s by the server's clock, which may differ a little from the test's.
        assert!(after >= Duration::from_millis(950), "{after:?}");
    }
}
