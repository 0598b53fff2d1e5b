//! Requests that wait in a queue that two servers share.

use super::{
    client::{BOTH, Client, Http, read},
    server::{BOUND, Feed, Server},
};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use std::time::Duration;
use testing::{http_requests::limit, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::sync::mpsc;
use tower_semaphore::RedisSemaphore;

const QUEUE: &str = "semaphore:{concurrency:alice}:queue";
const ALIVE: &str = "semaphore:{concurrency:alice}:alive";

/// Sooner than a waiter counts as dead under the default lease.
const SOON: Duration = Duration::from_millis(1_500);

/// A server with a store of its own, in which alice has one permit and further requests wait.
async fn server(redis: &RedisServer) -> Server {
    let store = RedisSemaphore::connect(redis.url()).await;
    let layer = limit(1, store.expect("it connects"));
    Server::under(layer.with_wait(BOUND)).await
}

/// Takes the only permit.
async fn occupy(server: &mut Server, http: Http) -> (Response<Incoming>, Feed) {
    let response = Client::new(http, server).get("/stream").await;
    assert_eq!(response.status(), StatusCode::OK);
    (response, server.feed().await)
}

/// Waits until `count` requests wait, as the Redis server sees it.
async fn waits(raw: &mut Raw, count: usize) {
    eventually("as many wait as should", BOUND, async || {
        raw.zcard(QUEUE).await == count && raw.zcard(ALIVE).await == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_client_drops_leaves_the_queue_in_redis() {
    for http in BOTH {
        let redis = RedisServer::start();
        let mut raw = Raw::connect(redis.port()).await;
        let (mut here, there) = (server(&redis).await, server(&redis).await);
        let (held, feed) = occupy(&mut here, http).await;
        let (gone, next) = (Client::new(http, &there), Client::new(http, &there));
        tokio::select! {
            _ = gone.send(Method::GET, "/panic", "alice") => panic!("an answer"),
            () = waits(&mut raw, 1) => {}
        }
        eventually(
            "it leaves, and is not passed over when it is dead",
            SOON,
            async || raw.zcard(QUEUE).await == 0,
        )
        .await;
        let next = tokio::spawn(async move { next.get("/full").await });
        waits(&mut raw, 1).await;
        drop(feed);
        read(held).await;
        assert_eq!(next.await.expect("no panic").status(), StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_two_servers_are_served_in_the_order_of_their_arrival() {
    for http in BOTH {
        let redis = RedisServer::start();
        let mut raw = Raw::connect(redis.port()).await;
        let mut servers = [server(&redis).await, server(&redis).await];
        let (held, feed) = occupy(&mut servers[0], http).await;
        let (served, mut order) = mpsc::unbounded_channel();
        for position in 1..=10 {
            let client = Client::new(http, &servers[position % 2]);
            let served = served.clone();
            tokio::spawn(async move {
                let response = client.get("/stream").await;
                served.send((position, response)).expect("the test runs");
            });
            waits(&mut raw, position).await;
        }
        drop(feed);
        read(held).await;
        for position in 1..=10 {
            let (served, response) = order.recv().await.expect("the test holds a sender");
            assert_eq!(served, position, "{http:?}");
            drop(servers[position % 2].feed().await);
            read(response).await;
        }
    }
}
