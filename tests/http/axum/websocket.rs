//! A WebSocket whose handler extracts its permit and keeps it.
//!
//! Promises: P9.

use super::server::{BOUND, Server};
use axum::{
    extract::ws::{WebSocket, WebSocketUpgrade},
    response::Response,
    routing::any,
};
use futures_util::{SinkExt, StreamExt};
use testing::{
    http_requests::{ACCOUNT, limit},
    ledger::{Ledger, Page},
    wait::eventually,
};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};
use tower_semaphore::Permit;

type Socket = WebSocketStream<TcpStream>;

/// One permit was granted and has been released.
const FREED: Page = Page {
    granted: 1,
    returned: 1,
    most: 1,
};

async fn socket(permit: Permit, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|socket| async move {
        echo(socket).await;
        drop(permit);
    })
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        match message.to_text() {
            Ok("panic") => panic!("on purpose"),
            Ok("end") => return,
            _ => socket.send(message).await.expect("a client that reads"),
        }
    }
}

async fn server() -> (Ledger, Server) {
    let ledger = Ledger::default();
    let layer = limit(1, ledger.clone());
    let server =
        Server::with_layers(|routes| routes.route("/socket", any(socket)).layer(layer)).await;
    (ledger, server)
}

async fn try_open(server: &Server) -> Result<Socket, Error> {
    let stream = TcpStream::connect(server.address).await.expect("a server");
    let url = format!("ws://{}/socket", server.address);
    let mut request = url.into_client_request().expect("a URL");
    let alice = "alice".parse().expect("a header");
    request.headers_mut().insert(ACCOUNT, alice);
    client_async(request, stream)
        .await
        .map(|(socket, _)| socket)
}

/// Opens a socket as alice and returns it once a message has been echoed.
async fn open(ledger: &Ledger, server: &Server) -> Socket {
    let mut socket = try_open(server).await.expect("admitted");
    say(&mut socket, "hello").await;
    let echoed = socket.next().await.expect("an echo").expect("no error");
    assert_eq!(echoed.to_text().expect("text"), "hello");
    assert_eq!(ledger.page("alice").returned, 0);
    socket
}

async fn say(socket: &mut Socket, word: &str) {
    socket.send(Message::text(word)).await.expect("it is open");
}

async fn assert_freed(ledger: &Ledger, server: &Server) {
    let is_free = async || ledger.page("alice") == FREED;
    eventually("it is free", BOUND, is_free).await;
    assert!(try_open(server).await.is_ok());
}

#[tokio::test]
async fn a_socket_beyond_the_limit_is_refused_at_its_handshake() {
    let (ledger, server) = server().await;
    let _first = open(&ledger, &server).await;
    let refused = try_open(&server).await.expect_err("refused");
    assert!(matches!(refused, Error::Http(answer) if answer.status() == 429));
}

#[tokio::test]
async fn a_handler_that_ends_or_panics_frees_the_permit() {
    for word in ["end", "panic"] {
        let (ledger, server) = server().await;
        let mut socket = open(&ledger, &server).await;
        say(&mut socket, word).await;
        assert_freed(&ledger, &server).await;
    }
}

#[tokio::test]
async fn a_client_that_closes_or_hangs_up_frees_the_permit() {
    for closes in [true, false] {
        let (ledger, server) = server().await;
        let mut socket = open(&ledger, &server).await;
        if closes {
            socket.close(None).await.expect("it is open");
        }
        drop(socket);
        assert_freed(&ledger, &server).await;
    }
}
