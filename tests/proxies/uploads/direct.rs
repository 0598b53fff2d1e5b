//! Clients that send a complete upload to a service before they read the answer.
//!
//! Promises: P21.

use crate::{
    client::{Client, FULL, Framing, head, upload},
    service::{Service, layer},
};
use axum::response::IntoResponse;
use http::{HeaderValue, StatusCode};
use std::{net::SocketAddr, time::Duration};
use testing::{http_requests::limit, stubs::Broken};
use tower::ServiceBuilder;
use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};

const BOTH: [Framing; 2] = [Framing::Length, Framing::Chunked];

/// By default the layer reads 8 MiB of a refused upload.
const MB: usize = 1_000_000;

/// Asserts that each of a few uploads is answered with this status.
async fn assert_answered(address: SocketAddr, status: u16, framing: Framing, bytes: usize) {
    for _ in 0..5 {
        let answer = upload(address, framing, bytes).await;
        let answer = answer.unwrap_or_else(|error| panic!("{framing:?}, {bytes}: {error}"));
        assert_eq!(answer.status, status);
    }
}

#[tokio::test]
async fn a_client_that_sends_first_reads_the_refusal_of_an_upload_of_some_megabytes() {
    let service = Service::start().await;
    for framing in BOTH {
        for bytes in [MB / 10, MB, 5 * MB] {
            assert_answered(service.address, 429, framing, bytes).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_first_reads_the_refusal_of_an_upload_up_to_the_bound_that_is_set() {
    let layer = layer().with_max_drain(50 * MB as u64, Duration::from_secs(60));
    let service = Service::with(|routes| routes.layer(layer)).await;
    for framing in BOTH {
        assert_answered(service.address, 429, framing, 50 * MB).await;
    }
}

#[tokio::test]
async fn every_refusal_reaches_a_client_that_sends_first() {
    let state = HeaderValue::from_static("shut");
    let shut = limit(0, MemorySemaphore::new())
        .with_rejection(move |_| [("x-state", state.clone())].into_response());
    let empty =
        limit(0, MemorySemaphore::new()).with_rejection(|_| StatusCode::NO_CONTENT.into_response());
    let nameless = limit(5, MemorySemaphore::new());
    let global = GlobalConcurrencyLimitLayer::new(0, "all", MemorySemaphore::new());
    let service = Service::with(|routes| {
        let keyed = |layer| ServiceBuilder::new().layer(layer);
        axum::Router::new()
            .nest("/shut", routes.clone().layer(keyed(shut)))
            .nest("/empty", routes.clone().layer(keyed(empty)))
            .nest("/broken", routes.clone().layer(keyed(limit(5, Broken))))
            .nest("/nameless", routes.clone().layer(keyed(nameless)))
            .nest("/global", routes.layer(global))
    })
    .await;
    for (path, status) in [
        ("/shut", 200),
        ("/empty", 204),
        ("/broken", 503),
        ("/nameless", 400),
        ("/global", 429),
    ] {
        for method in ["POST", "PUT", "GET", "DELETE"] {
            let mut client = Client::connect(service.address).await;
            let head = head(method, path, FULL);
            let head = match path {
                "/nameless" => head.replace("x-account-id", "x-other"),
                _ => head,
            };
            client.write(&head).await.expect("it is read");
            let sent = client.write_body(Framing::Length, 2 * MB).await;
            sent.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            let answer = client.read().await;
            let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            assert_eq!(answer.status, status, "{method} {path}");
            assert_eq!(answer.header("cache-control"), Some("no-store"));
        }
    }
}

#[tokio::test]
async fn the_next_request_of_a_connection_is_served_after_a_refused_upload() {
    let service = Service::start().await;
    for framing in BOTH {
        let mut client = Client::connect(service.address).await;
        for _ in 0..3 {
            client.write_upload(framing, MB).await.expect("it is read");
            assert_eq!(client.read().await.expect("a refusal").status, 429);
            let next = format!("{}\r\n", head("GET", "/", "ann"));
            client.write(&next).await.expect("it is read");
            assert_eq!(client.read().await.expect("a page").body, "page");
        }
    }
}

#[tokio::test]
async fn a_request_that_is_sent_right_after_a_refused_upload_is_served() {
    let service = Service::start().await;
    for framing in BOTH {
        let mut client = Client::connect(service.address).await;
        client.write_upload(framing, MB).await.expect("it is read");
        let next = format!("{}\r\n", head("GET", "/", "ann"));
        client.write(&next).await.expect("it is read");
        assert_eq!(client.read().await.expect("a refusal").status, 429);
        assert_eq!(client.read().await.expect("a page").body, "page");
    }
}

#[tokio::test]
async fn a_connection_whose_client_wants_it_closed_ends_after_a_refused_upload() {
    let service = Service::start().await;
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let mut client = Client::connect(service.address).await;
        let head = head("POST", "/", FULL).replace("HTTP/1.1", version);
        let sent = client.write(&format!("{head}connection: close\r\n")).await;
        sent.expect("it is read");
        let sent = client.write_body(Framing::Length, MB).await;
        sent.expect("it is read");
        assert_eq!(client.read().await.expect("a refusal").status, 429);
        assert!(client.ends_without_data().await);
    }
}

#[tokio::test]
async fn the_head_of_a_refusal_without_a_body_reaches_a_client_that_sends_first() {
    let service = Service::start().await;
    let mut client = Client::connect(service.address).await;
    let sent = client.write(&head("HEAD", "/", FULL)).await;
    sent.expect("it is read");
    let sent = client.write_body(Framing::Length, MB).await;
    sent.expect("it is read");
    assert_eq!(client.read_head().await.expect("a refusal").status, 429);
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_is_refused_before_it_sends() {
    let service = Service::start().await;
    let mut client = Client::connect(service.address).await;
    let head = head("POST", "/", FULL);
    let expecting = format!("{head}expect: 100-continue\r\ncontent-length: {MB}\r\n\r\n");
    client.write(&expecting).await.expect("it is read");
    assert_eq!(client.read().await.expect("a refusal").status, 429);
}
