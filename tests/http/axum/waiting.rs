//! Requests that wait for their permit, over real sockets.
//!
//! Promises: P10, P12, P14.

use super::{
    client::{BOTH, Client, Http, open, read},
    server::{BOUND, Feed, Server},
};
use axum::{
    body::to_bytes,
    extract::Request,
    middleware::{Next, from_fn},
    response::IntoResponse,
};
use futures_util::future::join_all;
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use std::{sync::Arc, time::Duration};
use testing::{
    http_requests::limit,
    stores::{Store, memory, until_queued},
};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinHandle, time::timeout};
use tower_semaphore::{Claim, MemorySemaphore};

/// Shorter than the time after which a waiter counts as dead under the default lease.
const SOON: Duration = Duration::from_millis(1_500);

/// A server on which alice has five requests in flight, so that her next ones wait.
struct Busy {
    server: Server,
    client: Client,
    store: Store,
    five: Vec<(Response<Incoming>, Feed)>,
}

impl Busy {
    async fn start(http: Http, store: Store) -> Self {
        let layer = limit(5, Arc::clone(&store)).with_wait(BOUND);
        Self::on(Server::with_layer(layer).await, http, store).await
    }

    /// Fills a server whose limit of 5 is counted by `store`.
    async fn on(mut server: Server, http: Http, store: Store) -> Self {
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

    /// Starts a request and returns once it waits at `position` in the queue.
    async fn spawn_waiter(&self, position: u32) -> JoinHandle<Response<Incoming>> {
        let client = self.client.clone();
        let waiting = tokio::spawn(async move { client.get("/whole").await });
        self.wait_until_queued(position).await;
        waiting
    }

    /// Waits until alice has `count` waiting requests.
    async fn wait_until_queued(&self, count: u32) {
        let claim = Claim::new("alice").with_limit(5);
        until_queued(&self.store, &claim, count, BOUND).await;
    }
}

/// A dropped request leaves the queue at once; its entry does not have to expire first. The handler of its path,
/// `/panic`, must never run.
async fn leaves_the_queue(http: Http, store: Store) {
    let mut busy = Busy::start(http, store).await;
    tokio::select! {
        _ = busy.client.send(Method::GET, "/panic", "alice") => panic!("an answer"),
        () = busy.wait_until_queued(1) => {}
    }
    let left = timeout(SOON, busy.wait_until_queued(0)).await;
    left.expect("it leaves before it counts as dead");
    let next = busy.spawn_waiter(1).await;
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
    // The handler of `/panic` must never run.
    let closes = open(&busy.server, "/panic").await;
    busy.wait_until_queued(1).await;
    let mut closes_its_half = open(&busy.server, "/panic").await;
    busy.wait_until_queued(2).await;
    let resets = open(&busy.server, "/panic").await;
    busy.wait_until_queued(3).await;
    let next = busy.spawn_waiter(4).await;

    drop(closes);
    closes_its_half.shutdown().await.expect("it is open");
    resets.set_zero_linger().expect("a TCP socket can be reset");
    drop(resets);
    busy.wait_until_queued(1).await;
    busy.end_one().await;
    assert_eq!(next.await.expect("no panic").status(), StatusCode::OK);
}

/// Reads the whole upload before the request waits.
async fn read_first(request: Request, next: Next) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    match to_bytes(body, 1 << 20).await {
        Ok(body) => next.run(Request::from_parts(parts, body.into())).await,
        Err(_) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
    }
}

/// A connected client that has sent 100 kB with its request.
async fn upload(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.expect("a server");
    let head = "POST /whole HTTP/1.1\r\nhost: market\r\nx-account-id: alice\r\ncontent-length: 100000\r\n\r\n";
    let request = head.to_owned() + &"x".repeat(100_000);
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("a server that reads, or a system that buffers");
    socket
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed_only_after_its_upload_has_been_read() {
    let layer = |store: &Store| limit(5, Arc::clone(store)).with_wait(BOUND);
    let unread = Busy::start(Http::One, memory()).await;
    let store = memory();
    let server =
        Server::with_layers(|routes| routes.layer(layer(&store)).layer(from_fn(read_first)));
    let read = Busy::on(server.await, Http::One, store).await;
    for busy in [&unread, &read] {
        let client = upload(&busy.server).await;
        busy.wait_until_queued(1).await;
        drop(client);
    }
    read.wait_until_queued(0).await;
    unread.wait_until_queued(1).await;
}

#[tokio::test]
async fn waiting_requests_use_up_their_connection_s_streams_unless_few_may_wait() {
    let store = memory();
    let layer = limit(5, Arc::clone(&store))
        .with_wait(BOUND)
        .with_max_waiting(1_000);
    let crowded = Busy::on(Server::with_layer(layer).await, Http::Two, store).await;
    let store = memory();
    let layer = limit(5, Arc::clone(&store))
        .with_wait(BOUND)
        .with_max_waiting(50);
    let bounded = Busy::on(Server::with_layer(layer).await, Http::Two, store).await;
    let bob = |busy: &Busy| {
        let client = busy.client.clone();
        tokio::spawn(async move { client.send(Method::GET, "/whole", "bob").await })
    };
    let get = |busy: &Busy| {
        let client = busy.client.clone();
        tokio::spawn(async move { client.get("/whole").await.status() })
    };
    // A connection has 200 streams. Five have responses, so only 195 of these requests are sent, and none of bob.
    let all: Vec<_> = (0..200).map(|_| [get(&crowded), get(&bounded)]).collect();
    crowded.wait_until_queued(195).await;
    bounded.wait_until_queued(50).await;
    let unsent = bob(&crowded);
    let answer = timeout(BOUND, bob(&bounded)).await.expect("in time");
    let answer = answer.expect("no panic").expect("a response");
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(!unsent.is_finished());
    drop(all);
}

#[tokio::test]
async fn forty_clients_that_wait_are_all_served_and_five_at_a_time() {
    for http in BOTH {
        let server = Server::with_layer(limit(5, MemorySemaphore::new()).with_wait(BOUND)).await;
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
