//! Nested limits of one store, through several handles.

use crate::layer::rig::stalled;
use std::time::Duration;
use testing::{
    http_requests::{limit, request},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tower::{Layer, ServiceExt};
use tower_semaphore::RedisSemaphore;

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
    let held = "semaphore:2:{concurrency:ann}:held";
    eventually(
        "refusals hold nothing",
        Duration::from_secs(20),
        async || raw.zmembers(held).await.len() == served.len(),
    )
    .await;
    (statuses, raw.zmembers(held).await.len())
}

async fn connect(url: String) -> RedisSemaphore {
    RedisSemaphore::connect(url).await.expect("it connects")
}

/// A store on a supplied connection, which learns from a check to which server it is.
async fn supplied(server: &RedisServer) -> RedisSemaphore {
    let connection = testing::stores::connection(&server.url()).await;
    let store = RedisSemaphore::with_connection(connection).expect("a store");
    store.check().await.expect("it is well");
    store
}

#[tokio::test]
async fn handles_to_one_server_and_prefix_are_one_store_whatever_their_way() {
    let server = RedisServer::start();
    let by_name = |host| connect(format!("redis://{host}:{}/", server.port()));
    for (name, inner) in [
        ("127.0.0.1", by_name("127.0.0.1").await),
        ("localhost", by_name("localhost").await),
        ("LOCALHOST", by_name("LOCALHOST").await),
        ("127.1", by_name("127.1").await),
        ("a supplied connection", supplied(&server).await),
    ] {
        let outer = by_name("127.0.0.1").await;
        let seen = two_in_flight(&server, (outer, 2), (inner, 2)).await;
        assert_eq!(seen, ([200, 200], 2), "{name}");
    }
}

#[tokio::test]
async fn another_prefix_is_another_store() {
    let server = RedisServer::start();
    let other = RedisSemaphore::builder().prefix("other:");
    let inner = other.connect(server.url()).await.expect("it connects");
    let outer = connect(server.url()).await;
    let seen = two_in_flight(&server, (outer, 2), (inner, 1)).await;
    assert_eq!(seen.0, [200, 429], "the inner limit counts by itself");
}
