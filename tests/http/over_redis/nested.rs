//! Nested limits of one store, through several handles.

use http::{Request, Response};
use http_body_util::StreamBody;
use std::{convert::Infallible, time::Duration};
use testing::{
    http_requests::{limit, request},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{RedisSemaphore, redis::client::Client};

type Stalled =
    StreamBody<futures_util::stream::Pending<Result<http_body::Frame<bytes::Bytes>, Infallible>>>;

/// Answers with a body that never ends.
fn stalled()
-> impl Service<Request<()>, Response = Response<Stalled>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |_| {
        Ok(Response::new(StreamBody::new(
            futures_util::stream::pending(),
        )))
    })
}

/// The statuses of two requests in flight, and how many permits of `ann` are held under that prefix.
async fn two_in_flight(
    server: &RedisServer,
    (outer, outer_limit): (RedisSemaphore, u32),
    (inner, inner_limit): (RedisSemaphore, u32),
) -> ([u16; 2], usize) {
    let service = limit(outer_limit, outer).layer(limit(inner_limit, inner).layer(stalled()));
    let first = service.clone().oneshot(request("ann")).await;
    let second = service.oneshot(request("ann")).await;
    let answers = [first, second].map(|answer| answer.expect("it is infallible"));
    let statuses = answers.each_ref().map(|answer| answer.status().as_u16());
    // A refusal holds the outer permit until it is sent.
    let served = answers.into_iter().filter(|answer| answer.status() == 200);
    let served: Vec<_> = served.collect();
    let mut raw = Raw::connect(server.port()).await;
    let held = "semaphore:{concurrency:ann}:held";
    eventually(
        "refusals hold nothing",
        Duration::from_secs(20),
        async || raw.zmembers(held).await.len() == served.len(),
    )
    .await;
    (statuses, raw.zmembers(held).await.len())
}

#[tokio::test]
async fn two_handles_to_one_server_and_prefix_are_one_store() {
    let server = RedisServer::start();
    let connect = async |host: &str| {
        let url = format!("redis://{host}:{}/", server.port());
        RedisSemaphore::connect(url).await.expect("it connects")
    };
    for other_name in ["127.0.0.1", "localhost", "LOCALHOST", "127.1"] {
        let (outer, inner) = (connect("127.0.0.1").await, connect(other_name).await);
        let seen = two_in_flight(&server, (outer, 2), (inner, 2)).await;
        assert_eq!(seen, ([200, 200], 2), "{other_name}");
    }
}

#[tokio::test]
async fn a_narrower_limit_inside_holds_the_only_permit() {
    let server = RedisServer::start();
    let connect = async || {
        RedisSemaphore::connect(server.url())
            .await
            .expect("it connects")
    };
    let (outer, inner) = (connect().await, connect().await);
    let seen = two_in_flight(&server, (outer, 9), (inner, 1)).await;
    assert_eq!(seen, ([200, 429], 1));
}

#[tokio::test]
async fn another_prefix_is_another_store() {
    let server = RedisServer::start();
    let outer = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    let inner = RedisSemaphore::builder()
        .prefix("other:")
        .connect(server.url())
        .await;
    let seen = two_in_flight(&server, (outer, 2), (inner.expect("it connects"), 1)).await;
    assert_eq!(seen.0, [200, 429], "the inner limit counts by itself");
}

#[tokio::test]
async fn a_supplied_connection_is_known_to_be_to_the_same_server_after_a_check() {
    let server = RedisServer::start();
    let outer = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    let client = Client::open(server.url()).expect("a URL");
    let connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("it connects");
    let inner = RedisSemaphore::with_connection(connection).expect("a store");
    inner.check().await.expect("it is well");
    let seen = two_in_flight(&server, (outer, 2), (inner, 2)).await;
    assert_eq!(seen, ([200, 200], 2));
}
