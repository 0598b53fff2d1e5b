//! Requests that wait for their permit, over real sockets.

use super::{
    client::{BOTH, Client, Http, open, read},
    server::{BOUND, Feed, Server},
};
use futures_util::future::join_all;
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use std::{sync::Arc, time::Duration};
use testing::{
    http_requests::limit,
    stores::{Store, memory},
    wait::eventually,
};
use tokio::{io::AsyncWriteExt, task::JoinHandle, time::timeout};
use tower_semaphore::{AcquireError, Claim, MemorySemaphore};

/// Sooner than a waiter counts as dead under the default lease.
const SOON: Duration = Duration::from_millis(1_500);

/// A server that keeps five requests of alice's in flight, so that the next ones wait.
struct Busy {
    server: Server,
    client: Client,
    store: Store,
    five: Vec<(Response<Incoming>, Feed)>,
}

impl Busy {
    async fn start(http: Http, store: Store) -> Self {
        let layer = limit(5, Arc::clone(&store)).with_wait(BOUND);
        let mut server = Server::under(layer).await;
        let client = Client::new(http, &server);
        let mut five = Vec::new();
        for _ in 0..5 {
            five.push((client.get("/stream").await, server.feed().await));
        }
        Self {
            server,
            client,
            store,
            five,
        }
    }

    /// Ends one of the five bodies.
    async fn end_one(&mut self) {
        let (response, feed) = self.five.pop().expect("some are left");
        drop(feed);
        read(response).await;
    }

    /// Starts a request that waits at `position` in the queue.
    async fn wait(&self, position: u32) -> JoinHandle<Response<Incoming>> {
        let client = self.client.clone();
        let waiting = tokio::spawn(async move { client.get("/full").await });
        self.waits(position).await;
        waiting
    }

    /// Waits until so many requests of alice's wait.
    async fn waits(&self, count: u32) {
        eventually("as many wait as should", BOUND, async || {
            matches!(self.probe(count).await, AcquireError::QueueFull)
                && matches!(self.probe(count + 1).await, AcquireError::TimedOut)
        })
        .await;
    }

    /// How one more claim fails if at most `longest` may wait.
    async fn probe(&self, longest: u32) -> AcquireError {
        let claim = Claim::new("alice")
            .with_limit(5)
            .with_wait(Duration::from_millis(1))
            .with_max_waiting(longest);
        let refused = self.store.acquire(claim).await;
        refused.expect_err("five are in flight")
    }
}

/// It leaves, and is not passed over when it is dead.
async fn leaves_the_queue(http: Http, store: Store) {
    let mut busy = Busy::start(http, store).await;
    tokio::select! {
        _ = busy.client.send(Method::GET, "/panic", "alice") => panic!("an answer"),
        () = busy.waits(1) => {}
    }
    let left = timeout(SOON, busy.waits(0)).await;
    left.expect("it leaves before it counts as dead");
    let next = busy.wait(1).await;
    busy.end_one().await;
    assert_eq!(next.await.expect("no panic").status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_that_the_client_drops_leaves_the_queue() {
    for http in BOTH {
        leaves_the_queue(http, memory()).await;
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_client_drops_leaves_the_queue_in_redis() {
    let server = testing::redis::RedisServer::start();
    for http in BOTH {
        leaves_the_queue(http, testing::stores::redis(&server.url()).await).await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_the_queue_to_the_next() {
    let mut busy = Busy::start(Http::One, memory()).await;
    let closes = open(&busy.server, "/panic").await;
    busy.waits(1).await;
    let mut closes_its_half = open(&busy.server, "/panic").await;
    busy.waits(2).await;
    let resets = open(&busy.server, "/panic").await;
    busy.waits(3).await;
    let next = busy.wait(4).await;

    drop(closes);
    closes_its_half.shutdown().await.expect("it is open");
    resets.set_zero_linger().expect("a TCP socket can be reset");
    drop(resets);
    busy.waits(1).await;
    busy.end_one().await;
    assert_eq!(next.await.expect("no panic").status(), StatusCode::OK);
}

#[tokio::test]
async fn forty_clients_that_wait_are_all_served_and_five_at_a_time() {
    for http in BOTH {
        let server = Server::under(limit(5, MemorySemaphore::new()).with_wait(BOUND)).await;
        let client = Client::new(http, &server);
        let served = join_all((0..40).map(|_| async {
            let response = client.get("/witnessed").await;
            assert_eq!(response.status(), StatusCode::OK);
            read(response).await.0
        }));
        assert!(served.await.iter().all(|body| *body == "frame".repeat(5)));
        assert_eq!(server.witness.most(), 5);
    }
}
