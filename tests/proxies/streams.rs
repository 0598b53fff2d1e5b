//! Streams through nginx: how long they hold their permits, and how a cut stream appears to its client.
//!
//! Promises: P9, P23.

use crate::{
    client::{BOUND, Client, head},
    proxy::{Nginx, Proxy},
    service::Service,
};
use axum::{Router, body::Body, response::IntoResponse, routing::get};
use futures_util::{StreamExt, stream};
use std::{io, sync::Arc};
use testing::{http_requests::limit, wait::eventually};
use tokio::sync::Notify;
use tower_semaphore::{Claim, MemorySemaphore, Semaphore};

async fn nginx(service: &Service, location: &str) -> Proxy {
    let nginx = Nginx {
        servers: &[service.address],
        location,
        ..Nginx::default()
    };
    nginx.start().await
}

/// Sends a request, and reads only the head of the response.
async fn open(proxy: &Proxy, path: &str, account: &str) -> Client {
    let mut client = Client::connect(proxy.address()).await;
    let request = head("GET", path, account) + "connection: close\r\n\r\n";
    client.write(&request).await.expect("a proxy that reads");
    let answer = client.read_head().await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", proxy.log());
    client
}

/// A body of 64 MB, which is more than the buffers of the system hold.
fn large() -> Body {
    let chunks = (0..1_024).map(|_| Ok::<_, io::Error>(vec![b'x'; 65_536]));
    Body::from_stream(stream::iter(chunks))
}

async fn is_free(store: &MemorySemaphore, account: &str) -> bool {
    let claim = Claim::new(account).with_limit(1);
    store.acquire(claim).await.is_ok()
}

#[tokio::test]
#[ignore = "for the night"]
async fn nginx_reads_a_response_before_its_client_does_unless_it_is_asked_not_to() {
    let store = MemorySemaphore::new();
    let layer = limit(1, store.clone());
    let direct = async || ([("x-accel-buffering", "no")], large()).into_response();
    let routes = |routes: Router| {
        let routes = routes.route("/buffered", get(async || large()));
        routes.route("/direct", get(direct)).layer(layer)
    };
    let service = Service::with(routes).await;
    let nginx = nginx(&service, "").await;

    let direct = open(&nginx, "/direct", "ann").await;
    let _buffered = open(&nginx, "/buffered", "bob").await;
    eventually("nginx has read all of it", BOUND, async || {
        is_free(&store, "bob").await
    })
    .await;
    assert!(!is_free(&store, "ann").await, "its client has read nothing");
    drop(direct);
    eventually("its client has hung up", BOUND, async || {
        is_free(&store, "ann").await
    })
    .await;
}

/// All that a client reads after the head of a response that the service cuts after its first row.
async fn read_cut_response(location: &str) -> String {
    let cut = Arc::new(Notify::new());
    let cut_now = Arc::clone(&cut);
    let response = async move || {
        let error = async move {
            cut.notified().await;
            Err(io::Error::other("cut"))
        };
        let rows = stream::iter([Ok("row\n")]).chain(stream::once(error));
        ([("x-accel-buffering", "no")], Body::from_stream(rows)).into_response()
    };
    let service = Service::with(|routes| routes.route("/cut", get(response))).await;
    let nginx = nginx(&service, location).await;
    let mut client = open(&nginx, "/cut", "ann").await;
    cut_now.notify_one();
    client.read_to_end().await
}

#[tokio::test]
#[ignore = "for the night"]
async fn a_response_that_is_cut_looks_whole_if_nginx_speaks_http_1_0() {
    let whole = read_cut_response("proxy_http_version 1.0;").await;
    assert!(whole.ends_with("row\n\r\n0\r\n\r\n"), "{whole}");
    let cut = read_cut_response("proxy_http_version 1.1;").await;
    assert!(cut.ends_with("row\n\r\n"), "{cut}");
}
