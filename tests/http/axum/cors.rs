//! The layer beside CORS, in the order that the guide recommends and in the reverse order.
//!
//! Promises: P21.

use super::{
    client::{Client, Http, head},
    server::Server,
};
use axum::Router;
use http::{Response, header::RETRY_AFTER};
use hyper::body::Incoming;
use testing::http_requests::{ACCOUNT, limit};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tower_http::cors::{Any, CorsLayer};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

const ORIGIN: &str = "access-control-allow-origin";

fn cors() -> CorsLayer {
    let account = ACCOUNT.parse().expect("a name");
    let cors = CorsLayer::new().allow_origin(Any).allow_headers([account]);
    cors.expose_headers([RETRY_AFTER])
}

fn one() -> ConcurrencyLimitLayer<key::Header> {
    limit(1, MemorySemaphore::new())
}

/// Sends the preflight of a browser, which names no account. Returns the head of the answer.
async fn preflight(server: &Server) -> String {
    let mut socket = TcpStream::connect(server.address).await.expect("a server");
    let request = format!(
        "OPTIONS /stream HTTP/1.1\r\nhost: market\r\norigin: https://shop.example\r\n\
         access-control-request-method: GET\r\naccess-control-request-headers: {ACCOUNT}\r\n\r\n"
    );
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("a server that reads");
    head(&mut socket).await
}

/// Sends a preflight and then a request of an account whose only permit is held. Returns the head of the first answer,
/// and the second answer, which is a refusal.
async fn refused(layers: impl FnOnce(Router) -> Router) -> (String, Response<Incoming>) {
    let server = Server::with_layers(layers).await;
    let client = Client::new(Http::One, &server);
    let held = client.get("/stream").await;
    assert_eq!(held.status(), 200);
    let answers = (preflight(&server).await, client.get("/stream").await);
    assert_eq!(answers.1.status(), 429);
    answers
}

#[tokio::test]
async fn inside_of_cors_a_preflight_takes_no_permit_and_a_page_can_read_a_refusal() {
    let (preflight, refused) = refused(|routes| routes.layer(one()).layer(cors())).await;
    assert!(preflight.starts_with("HTTP/1.1 200"), "{preflight}");
    assert!(preflight.contains(ACCOUNT), "{preflight}");
    assert_eq!(refused.headers()[ORIGIN], "*");
    assert_eq!(
        refused.headers()["access-control-expose-headers"],
        "retry-after"
    );
    assert!(refused.headers().contains_key(RETRY_AFTER));
}

#[tokio::test]
async fn outside_of_cors_a_preflight_lacks_the_account_and_no_page_can_read_a_refusal() {
    let (preflight, refused) = refused(|routes| routes.layer(cors()).layer(one())).await;
    assert!(preflight.starts_with("HTTP/1.1 400"), "{preflight}");
    assert!(!preflight.contains(ORIGIN), "{preflight}");
    assert!(!refused.headers().contains_key(ORIGIN));
}

#[tokio::test]
async fn outside_of_cors_a_preflight_takes_a_permit_if_it_has_a_key() {
    let all = || ConcurrencyLimitLayer::new(1, key::fixed("all"), MemorySemaphore::new());
    let (preflight, _) = refused(|routes| routes.layer(cors()).layer(all())).await;
    assert!(preflight.starts_with("HTTP/1.1 429"), "{preflight}");
}
