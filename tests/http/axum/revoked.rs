//! A response that streams while an operator revokes its permit.
//!
//! Promises: P23, P24.

use super::{
    client::{BOTH, Client, Http},
    server::{BOUND, Server},
};
use axum::{
    Router,
    response::sse::{Event, Sse},
    routing::get,
};
use futures_util::stream;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::{convert::Infallible, fmt::Debug};
use testing::{http_requests::limit, wait::eventually};
use tokio::{task::JoinHandle, time::timeout};
use tower_semaphore::{MemorySemaphore, OnLost, Operate, Semaphore, semaphore::Usage};

/// A store whose permits tests can list and revoke.
pub(super) trait Store: Semaphore + Operate + Clone + Debug {}

impl<S: Semaphore + Operate + Clone + Debug> Store for S {}

async fn usage(store: &impl Store) -> Usage {
    let usage = store.usage(&"concurrency".into(), &"alice".into()).await;
    usage.expect("the store answers")
}

/// Starts a server with one permit that other requests can wait for.
async fn server(store: &impl Store, on_lost: OnLost) -> Server {
    let layer = limit(1, store.clone())
        .with_on_lost(on_lost)
        .with_wait(BOUND);
    Server::with_layers(|routes| {
        let events = Router::new().route("/events", get(events));
        routes.merge(events).layer(layer)
    })
    .await
}

/// Sends one event and then never ends.
async fn events() -> Sse<impl stream::Stream<Item = Result<Event, Infallible>>> {
    let one = stream::iter([Ok(Event::default().data("hello"))]);
    Sse::new(futures_util::StreamExt::chain(one, stream::pending()))
}

/// Revokes the only held permit while a second request waits.
pub(super) async fn revoke(store: &impl Store) {
    eventually("the next one waits", BOUND, async || {
        usage(store).await.waiting.len() == 1
    })
    .await;
    let id = usage(store).await.held[0].id.to_string();
    let revoked = store
        .revoke(&"concurrency".into(), &"alice".into(), &id)
        .await;
    assert!(revoked.expect("the store answers"), "it is held");
}

/// Spawns a request that waits for the permit.
pub(super) fn next(http: Http, server: &Server) -> JoinHandle<Response<Incoming>> {
    let next = Client::new(http, server);
    tokio::spawn(async move { next.get("/stream").await })
}

/// Asserts that the waiting request is answered and holds the only permit.
async fn assert_served(
    store: &impl Store,
    next: JoinHandle<Response<Incoming>>,
) -> Response<Incoming> {
    let next = timeout(BOUND, next).await.expect("it is its turn");
    let next = next.expect("no panic");
    assert_eq!(next.status(), StatusCode::OK);
    let shown = usage(store).await;
    assert_eq!((shown.held.len(), shown.units), (1, 1));
    next
}

async fn wait_until_free(store: &impl Store) {
    let is_free = async || usage(store).await.units == 0;
    eventually("nothing is left", BOUND, is_free).await;
}

/// Reads until the body ends. Returns the number of rows, and true if the body ended without an error.
async fn read_on(body: &mut Incoming) -> (usize, bool) {
    let mut rows = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            // The end of the body may arrive as a separate, empty frame.
            Ok(frame) => rows += usize::from(frame.data_ref().is_some_and(|row| !row.is_empty())),
            Err(_) => return (rows, false),
        }
    }
    (rows, true)
}

async fn aborted(store: impl Store, http: Http, path: &str) {
    let mut server = server(&store, OnLost::Abort).await;
    let client = Client::new(http, &server);
    let mut response = client.get(path).await;
    let feed = match path {
        "/stream" => Some(server.feed().await),
        _ => None,
    };
    let next = next(http, &server);
    revoke(&store).await;
    let end = timeout(BOUND, read_on(response.body_mut())).await;
    let (_, is_whole) = end.expect("the stream ends");
    assert!(!is_whole, "{http:?} {path}: the client takes it for whole");
    let next = assert_served(&store, next).await;
    drop((response, feed));
    drop((next, server.feed().await));
    wait_until_free(&store).await;
    // The HTTP/2 connection stays usable.
    let again = client.get("/whole").await;
    assert_eq!(again.status(), StatusCode::OK);
}

async fn finished(store: impl Store, http: Http) {
    let mut server = server(&store, OnLost::Finish).await;
    let mut response = Client::new(http, &server).get("/stream").await;
    let feed = server.feed().await;
    let next = next(http, &server);
    revoke(&store).await;
    let next = assert_served(&store, next).await;
    let next_feed = server.feed().await;
    feed.send(Ok("row".into())).await.expect("it goes on");
    drop(feed);
    let end = timeout(BOUND, read_on(response.body_mut())).await;
    assert_eq!(end.expect("it ends"), (1, true));
    drop(response);
    let shown = usage(&store).await;
    let held = (shown.held.len(), shown.units);
    assert_eq!(held, (1, 1), "the next request lost its permit");
    drop((next, next_feed));
    wait_until_free(&store).await;
}

pub(super) fn memory() -> MemorySemaphore {
    MemorySemaphore::builder().holders(true).build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_stream_is_cut_and_the_next_one_served() {
    for http in BOTH {
        for path in ["/stream", "/events", "/endless"] {
            aborted(memory(), http, path).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_stream_goes_on_if_the_layer_says_so_and_the_next_one_is_served() {
    for http in BOTH {
        finished(memory(), http).await;
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_revoked_in_redis_is_cut_or_goes_on_as_the_layer_says() {
    let redis = testing::redis::RedisServer::start();
    let store = tower_semaphore::RedisSemaphore::connect(redis.url()).await;
    let store = store.expect("it connects");
    for http in BOTH {
        for path in ["/stream", "/events", "/endless"] {
            aborted(store.clone(), http, path).await;
        }
        finished(store.clone(), http).await;
    }
}
