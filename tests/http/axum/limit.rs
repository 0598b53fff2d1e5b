//! Five requests of an account, and the sixth.

use super::{
    client::{BOTH, Client, Http, head, open, read},
    server::{Server, eventually},
};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use std::time::Duration;
use testing::{http_requests::limit, ledger::Page};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, OnLost, key};

async fn assert_refused(response: Response<Incoming>) {
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers();
    let policy = r#""concurrency";q=5;qu="concurrent-requests""#;
    assert_eq!(headers["ratelimit-policy"], policy);
    let told = headers["retry-after"].to_str().expect("digits");
    assert!(told.parse::<u64>().expect("seconds") >= 1);
    let left = format!(r#""concurrency";r=0;t={told}"#);
    assert_eq!(headers["ratelimit"], left);
    assert_eq!(headers["content-type"], "application/problem+json");
    let (body, _) = read(response).await;
    let problem: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"][0], "concurrency");
}

#[tokio::test]
async fn the_sixth_request_is_refused_with_the_fields_and_a_problem() {
    for http in BOTH {
        let server = Server::start().await;
        let client = Client::new(http, &server);
        let five = client.five().await;
        assert!(five.iter().all(|response| response.status() == 200));
        assert_refused(client.get("/full").await).await;
        assert_eq!(server.page().granted, 5);
    }
}

#[tokio::test]
async fn one_ended_body_makes_room_for_one_request() {
    for http in BOTH {
        let mut server = Server::start().await;
        let client = Client::new(http, &server);
        let first = client.get("/stream").await;
        let feed = server.feed().await;
        let mut others = Vec::new();
        for _ in 0..4 {
            others.push((client.get("/stream").await, server.feed().await));
        }
        drop(feed);
        assert_eq!(read(first).await.0, "");
        others.push((client.get("/stream").await, server.feed().await));
        assert_eq!(
            others.last().map(|(sixth, _)| sixth.status().as_u16()),
            Some(200)
        );
        assert_refused(client.get("/full").await).await;
    }
}

#[tokio::test]
async fn another_account_is_untouched() {
    for http in BOTH {
        let server = Server::start().await;
        let client = Client::new(http, &server);
        let _five = client.five().await;
        let bob = client.send(Method::GET, "/full", "bob").await.unwrap();
        assert_eq!(bob.headers()["ratelimit"], r#""concurrency";r=4"#);
        assert_eq!(read(bob).await.0, "all of it");
    }
}

#[tokio::test]
async fn a_permit_is_held_while_the_body_streams() {
    for http in BOTH {
        let mut server = Server::start().await;
        let mut response = Client::new(http, &server).get("/stream").await;
        let feed = server.feed().await;
        for _ in 0..3 {
            feed.send(Ok(Bytes::from_static(b"chunk"))).await.unwrap();
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "chunk");
            assert_eq!(server.held(), 1);
        }
        drop(feed);
        read(response).await;
        assert_eq!(server.held(), 0);
    }
}

#[tokio::test]
async fn an_upgraded_connection_holds_its_permit_while_the_handler_keeps_it() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start().await;
    let mut socket = open(&server, "/upgrade").await;
    assert!(head(&mut socket).await.starts_with("HTTP/1.1 101 "));
    socket.write_all(b"ping").await.unwrap();
    let mut heard = [0; 4];
    socket.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"ping");
    assert_eq!(server.held(), 1);
    drop(socket);
    server.holds(0).await;
}

#[tokio::test]
async fn an_upgraded_connection_holds_the_permits_of_all_layers() {
    let memory = MemorySemaphore::new();
    let all = ConcurrencyLimitLayer::new(9, key::fixed("all"), memory.clone()).with_policy("all");
    let account = limit(1, memory.clone());
    let server = Server::with(|routes| routes.layer(all).layer(account)).await;
    let mut first = open(&server, "/upgrade").await;
    assert!(head(&mut first).await.starts_with("HTTP/1.1 101 "));
    let mut second = open(&server, "/upgrade").await;
    assert!(head(&mut second).await.starts_with("HTTP/1.1 429 "));
    drop(first);
    eventually(|| memory.busy_keys() == 0).await;
}

#[tokio::test]
async fn forty_clients_that_try_again_are_all_served_and_five_at_a_time() {
    for http in BOTH {
        let server = Server::start().await;
        let client = Client::new(http, &server);
        join_all((0..40).map(|_| insist(client.clone()))).await;
        let all = Page {
            granted: 40,
            returned: 40,
            most: 5,
        };
        assert_eq!(server.page(), all);
        assert_eq!(server.witness.most(), 5);
    }
}

/// Sends requests until one is admitted.
async fn insist(client: Client) {
    loop {
        let response = client.get("/witnessed").await;
        let status = response.status();
        let (body, _) = read(response).await;
        if status == StatusCode::OK {
            return assert_eq!(body, "frame".repeat(5));
        }
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_holds_its_permit_no_longer_than_the_longest_hold() {
    let max_hold = Duration::from_millis(50);
    let server = Server::start_with(|layer| layer.with_max_hold(max_hold)).await;
    let stalled = Client::new(Http::One, &server).get("/endless").await;
    eventually(|| server.page().returned == 1).await;
    assert_eq!(stalled.status(), 200);
}

#[tokio::test]
async fn a_client_sees_that_a_response_was_aborted() {
    for http in BOTH {
        let max_hold = Duration::from_millis(50);
        let abort = |layer: ConcurrencyLimitLayer<_>| {
            layer.with_max_hold(max_hold).with_on_lost(OnLost::Abort)
        };
        let mut server = Server::start_with(abort).await;
        let response = Client::new(http, &server).get("/stream").await;
        let _feed = server.feed().await;
        assert!(response.into_body().collect().await.is_err());
        assert_eq!(server.held(), 0);
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn items_of_one_route_share_its_limit() {
    use axum::{Router, routing::get};
    use tower::ServiceExt;

    let item = || async {
        axum::body::Body::from_stream(
            futures_util::stream::pending::<Result<Bytes, std::io::Error>>(),
        )
    };
    let limit = ConcurrencyLimitLayer::new(1, key::matched_path(), MemorySemaphore::new());
    let routes: Router = Router::new()
        .route("/items/{id}", get(item))
        .route("/all", get(item));
    let app = routes.layer(limit);
    let get = async |path: &str| {
        let request = http::Request::get(path).body(axum::body::Body::empty());
        let Ok(response) = app.clone().oneshot(request.expect("a path")).await;
        response
    };
    let held = [get("/items/1").await, get("/all").await];
    assert!(held.iter().all(|response| response.status() == 200));
    assert_eq!(get("/items/2").await.status(), 429);
    assert_eq!(get("/nowhere").await.status(), 404);
}
