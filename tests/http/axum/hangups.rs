//! Clients that hang up: each frees the permit, once.

use super::{
    client::{BOTH, Client, Http, head, open},
    server::Server,
};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use testing::ledger::Page;
use tokio::{io::AsyncWriteExt, net::TcpStream};

const FREED: Page = Page {
    granted: 1,
    returned: 1,
    most: 1,
};

/// A server that streams to a client over HTTP/1.
async fn streaming() -> (Server, TcpStream) {
    let server = Server::start().await;
    let mut socket = open(&server, "/stream").await;
    assert!(head(&mut socket).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(server.held(), 1);
    (server, socket)
}

async fn assert_freed(mut server: Server) {
    let feed = server.feed().await;
    server.holds(0).await;
    assert_eq!(server.page(), FREED);
    assert!(feed.is_closed());
}

#[tokio::test]
async fn a_client_that_closes_frees_the_permit() {
    let (server, socket) = streaming().await;
    drop(socket);
    assert_freed(server).await;
}

#[tokio::test]
async fn a_client_that_closes_its_half_frees_the_permit() {
    let (server, mut socket) = streaming().await;
    socket.shutdown().await.unwrap();
    assert_freed(server).await;
}

#[tokio::test]
async fn a_client_that_resets_its_connection_frees_the_permit() {
    let (server, socket) = streaming().await;
    socket.set_zero_linger().unwrap();
    drop(socket);
    assert_freed(server).await;
}

#[tokio::test]
async fn a_client_that_closes_before_the_head_frees_the_permit() {
    let server = Server::start().await;
    let socket = open(&server, "/never").await;
    server.holds(1).await;
    drop(socket);
    server.holds(0).await;
    assert_eq!(server.page(), FREED);
}

#[tokio::test]
async fn a_response_that_the_client_drops_frees_the_permit() {
    for http in BOTH {
        let server = Server::start().await;
        let client = Client::new(http, &server);
        let response = client.get("/stream").await;
        assert_eq!(server.held(), 1);
        drop(response);
        assert_freed(server).await;
    }
}

#[tokio::test]
async fn a_request_that_the_client_drops_frees_the_permit() {
    for http in BOTH {
        let server = Server::start().await;
        let client = Client::new(http, &server);
        tokio::select! {
            _ = client.send(Method::GET, "/never", "alice") => panic!("an answer"),
            () = server.holds(1) => {}
        }
        server.holds(0).await;
        assert_eq!(server.page(), FREED, "{http:?}");
    }
}

#[tokio::test]
async fn a_reset_stream_frees_its_own_permit_only() {
    let mut server = Server::start().await;
    let client = Client::new(Http::Two, &server);
    let mut live = client.get("/stream").await;
    let feed = server.feed().await;
    let reset = client.get("/stream").await;
    assert_eq!(server.held(), 2);
    drop(reset);
    server.holds(1).await;
    feed.send(Ok(Bytes::from_static(b"still here")))
        .await
        .unwrap();
    let frame = live.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "still here");
    assert_eq!(server.page().returned, 1);
}

#[tokio::test]
async fn a_flood_of_reset_streams_leaves_nothing_held() {
    let mut server = Server::start().await;
    let client = Client::new(Http::Two, &server);
    for round in 1..=20 {
        drop(client.five().await);
        server.holds(0).await;
        assert_eq!(server.page().returned, 5 * round);
    }
    assert!(server.feed().await.is_closed());
    assert_eq!(server.page().most, 5);
}
