//! A handler whose permit is lost before it has answered: at the end of the longest hold, or by an operator's
//! revocation.
//!
//! Promises: P23.

use super::{
    client::{BOTH, Client, Http, read},
    revoked::{Store, memory, next, revoke},
    server::{BOUND, Server},
};
use axum::{Extension, Router, routing::get};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use std::{sync::Arc, time::Duration};
use testing::{http_requests::limit, in_flight::InFlight, wait::eventually};
use tokio::{sync::Notify, task::JoinHandle, time::timeout};
use tower_semaphore::OnLost;

const MAX_HOLD: Duration = Duration::from_millis(500);

/// How the permit is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    MaxHold,
    Revocation,
}

/// A server whose handler works until the test lets it end.
struct Fixture {
    server: Server,
    witness: InFlight,
    end: Arc<Notify>,
}

async fn work(Extension((witness, end)): Extension<(InFlight, Arc<Notify>)>) -> &'static str {
    let _inside = witness.begin();
    end.notified().await;
    "done"
}

impl Fixture {
    /// Starts a server with one permit that other requests can wait for.
    async fn start(store: &impl Store, on_lost: OnLost, loss: Loss) -> Self {
        let (witness, end) = (InFlight::default(), Arc::new(Notify::new()));
        let layer = limit(1, store.clone()).with_on_lost(on_lost);
        let layer = match loss {
            Loss::MaxHold => layer.with_max_hold(MAX_HOLD),
            Loss::Revocation => layer,
        };
        let work = get(work).layer(Extension((witness.clone(), Arc::clone(&end))));
        let layer = layer.with_wait(BOUND);
        let server = Server::with_layers(|routes| {
            routes
                .merge(Router::new().route("/work", work))
                .layer(layer)
        });
        Self {
            server: server.await,
            witness,
            end,
        }
    }

    /// Sends a request and one more, which waits behind it. Then the first loses its permit while its handler works.
    /// Returns both.
    async fn lose(
        &self,
        store: &impl Store,
        http: Http,
        loss: Loss,
    ) -> [JoinHandle<Response<Incoming>>; 2] {
        let client = Client::new(http, &self.server);
        let first = tokio::spawn(async move { client.get("/work").await });
        let is_working = async || self.inside() == 1;
        eventually("the handler works", BOUND, is_working).await;
        let next = next(http, &self.server);
        if let Loss::Revocation = loss {
            revoke(store).await;
        }
        [first, next]
    }

    /// The number of handlers that work now.
    fn inside(&self) -> usize {
        self.witness.restart();
        self.witness.most()
    }
}

async fn answered(request: JoinHandle<Response<Incoming>>) -> Response<Incoming> {
    let answer = timeout(BOUND, request).await.expect("it is answered");
    answer.expect("no panic")
}

async fn aborted(store: impl Store, http: Http, loss: Loss) {
    let mut fixture = Fixture::start(&store, OnLost::Abort, loss).await;
    let [first, next] = fixture.lose(&store, http, loss).await;
    let first = answered(first).await;
    assert_eq!(
        fixture.inside(),
        0,
        "{http:?} {loss:?}: the handler goes on"
    );
    assert_eq!(first.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(first.headers().contains_key("retry-after"));
    let (problem, _) = read(first).await;
    let problem: serde_json::Value = serde_json::from_slice(&problem).expect("JSON");
    assert_eq!(problem["detail"], "the permit was lost");
    assert_eq!(answered(next).await.status(), StatusCode::OK);
    // Ends the next response.
    drop(fixture.server.feed().await);
}

async fn finished(store: impl Store, http: Http, loss: Loss) {
    let mut fixture = Fixture::start(&store, OnLost::Finish, loss).await;
    let [first, next] = fixture.lose(&store, http, loss).await;
    assert_eq!(answered(next).await.status(), StatusCode::OK);
    // Ends the next response.
    drop(fixture.server.feed().await);
    assert_eq!(
        fixture.inside(),
        1,
        "{http:?} {loss:?}: the handler has ended"
    );
    fixture.end.notify_one();
    let first = answered(first).await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(read(first).await.0, "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_handler_is_dropped_and_its_client_gets_503_and_the_next_is_served() {
    for http in BOTH {
        for loss in [Loss::MaxHold, Loss::Revocation] {
            aborted(memory(), http, loss).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_the_handler_finishes_and_the_next_is_served_beside_it() {
    for http in BOTH {
        for loss in [Loss::MaxHold, Loss::Revocation] {
            finished(memory(), http, loss).await;
        }
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_the_handler_is_dropped_or_finishes_as_the_layer_says() {
    let redis = testing::redis::RedisServer::start();
    let store = tower_semaphore::RedisSemaphore::connect(redis.url()).await;
    let store = store.expect("it connects");
    for http in BOTH {
        for loss in [Loss::MaxHold, Loss::Revocation] {
            aborted(store.clone(), http, loss).await;
            finished(store.clone(), http, loss).await;
        }
    }
}
