//! Permits of full keys, which are released before the response's head.
//!
//! Promises: P9, P22.

use super::{BOUND, HELD, store};
use crate::layer::rig::ok;
use http::Request;
use http_body_util::BodyExt;
use testing::{
    http_requests::{limit, request},
    redis::RedisServer,
    resp::Raw,
};
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt, service_fn};

const REQUESTS: usize = 50;

/// The number of requests whose permit is gone from Redis when their head arrives.
async fn free_at_head(server: &RedisServer, max: u32) -> usize {
    let service = limit(max, store(server).await).layer(ok());
    let mut raw = Raw::connect(server.port()).await;
    let mut free = 0;
    for _ in 0..REQUESTS {
        let Ok(response) = service.clone().oneshot(request("a")).await;
        free += usize::from(raw.zmembers(HELD).await.is_empty());
        let body = response.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "ok");
    }
    free
}

/// On a busy machine some answers from Redis take too long for the layer to wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn the_permit_of_a_full_key_is_free_in_redis_when_the_head_is_there() {
    let server = RedisServer::start();
    let free = free_at_head(&server, 1).await;
    assert!(free > REQUESTS / 2, "{free} of {REQUESTS}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permit_of_a_key_with_room_is_held_until_its_body_is_read() {
    let server = RedisServer::start();
    assert_eq!(free_at_head(&server, 9).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stops_before_the_release_holds_no_head_back() {
    let server = RedisServer::start();
    let inner = ok();
    let stopping = service_fn(|request: Request<String>| {
        server.stop();
        inner.clone().call(request)
    });
    let service = limit(1, store(&server).await).layer(stopping);
    let response = timeout(BOUND, service.oneshot(request("a"))).await;
    let Ok(response) = response.expect("the head is there");
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), "ok");
    server.cont();
}
