//! Logs about tunnels: upgrades of HTTP/1.1, and CONNECT over HTTP/1.1 and HTTP/2.
//!
//! Promises: P25.

use crate::log::{listen, text};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use http_body_util::Empty;
use hyper::{
    body::Incoming,
    client::conn::http2,
    ext::Protocol,
    upgrade::{self, OnUpgrade},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use std::{convert::Infallible, net::SocketAddr, time::Duration};
use testing::wait::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split},
    net::{TcpListener, TcpStream},
};
use tower::{Layer, service_fn};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Permit, key};

/// The longest time for a condition to become true, even on a busy machine.
const BOUND: Duration = Duration::from_secs(20);

/// The value that the tunnel's task on the server holds.
#[derive(Debug, Clone, Copy)]
enum Holds {
    Permit,
    /// The request, with the permit in its extensions.
    Request,
    Nothing,
}

/// How a client opens a tunnel.
#[derive(Debug, Clone, Copy)]
enum Opens {
    Upgrade,
    Connect,
    ConnectOverHttp2,
    /// A WebSocket over HTTP/2.
    ExtendedConnect,
}

const ALL: [Opens; 4] = [
    Opens::Upgrade,
    Opens::Connect,
    Opens::ConnectOverHttp2,
    Opens::ExtendedConnect,
];

/// Sends back everything that it receives.
async fn echo(upgrade: OnUpgrade) {
    if let Ok(tunnel) = upgrade.await {
        let (mut from, mut to) = split(TokioIo::new(tunnel));
        let _ = copy(&mut from, &mut to).await;
    }
}

/// Opens a tunnel, unless the request is ordinary.
async fn open(mut request: Request<Incoming>, holds: Holds) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    let is_upgrade = request.headers().contains_key(UPGRADE);
    if is_upgrade {
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("echo"));
    }
    if !is_upgrade && request.method() != Method::CONNECT {
        return response;
    }
    match holds {
        Holds::Permit => {
            let permit = request.extensions_mut().remove::<Permit>();
            let upgrade = upgrade::on(request);
            tokio::spawn(async move {
                echo(upgrade).await;
                drop(permit);
            });
        }
        Holds::Request => {
            tokio::spawn(async move {
                echo(upgrade::on(&mut request)).await;
                drop(request);
            });
        }
        Holds::Nothing => drop(tokio::spawn(echo(upgrade::on(request)))),
    }
    response
}

/// A server with a limit of one tunnel.
async fn serve(policy: &'static str, holds: Holds) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("all"), MemorySemaphore::new());
    let layer = layer.with_policy(policy);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = layer.layer(service_fn(move |request| async move {
                Ok::<_, Infallible>(open(request, holds).await)
            }));
            tokio::spawn(async move {
                let mut server = auto::Builder::new(TokioExecutor::new());
                server.http2().enable_connect_protocol();
                let service = TowerToHyperService::new(service);
                let socket = TokioIo::new(socket);
                let _ = server.serve_connection_with_upgrades(socket, service).await;
            });
        }
    });
    address
}

/// The client's end of a tunnel that works: a word has been echoed.
type Tunnel = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens a tunnel.
///
/// # Errors
///
/// Returns the status of a refusal.
async fn dial(address: SocketAddr, opens: Opens) -> Result<Tunnel, u16> {
    match opens {
        Opens::Upgrade => {
            over_http1(
                address,
                "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: echo",
            )
            .await
        }
        Opens::Connect => over_http1(address, "CONNECT far:443 HTTP/1.1").await,
        Opens::ConnectOverHttp2 => {
            let request = Request::connect("far:443").body(Empty::new());
            over_http2(address, request.expect("a request")).await
        }
        Opens::ExtendedConnect => {
            let request = Request::connect("http://market/socket");
            let request = request.extension(Protocol::from_static("websocket"));
            let request = request.body(Empty::new());
            over_http2(address, request.expect("a request")).await
        }
    }
}

async fn over_http1(address: SocketAddr, head: &str) -> Result<Tunnel, u16> {
    let mut socket = TcpStream::connect(address).await.expect("a server");
    let head = format!("{head}\r\nhost: market\r\n\r\n");
    let sent = socket.write_all(head.as_bytes()).await;
    sent.expect("a server that reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.expect("more of the head"));
    }
    let head = String::from_utf8(head).expect("text");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    match status.expect("a status") {
        101 | 200 => Ok(echoed(socket).await),
        status => Err(status),
    }
}

async fn over_http2(address: SocketAddr, request: Request<Empty<Bytes>>) -> Result<Tunnel, u16> {
    let socket = TcpStream::connect(address).await.expect("a server");
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
    let (mut client, connection) = shaken.expect("a server of HTTP/2");
    tokio::spawn(connection);
    // The client needs an answer first, to learn that the server accepts extended CONNECT.
    let first = Request::get("http://market/").body(Empty::new());
    let first = client.send_request(first.expect("a request")).await;
    drop(first.expect("an answer"));
    let response = client.send_request(request).await.expect("an answer");
    if response.status() != 200 {
        return Err(response.status().as_u16());
    }
    let tunnel = upgrade::on(response).await.expect("a tunnel");
    Ok(echoed(TokioIo::new(tunnel)).await)
}

/// Asserts that a tunnel works, and returns it.
async fn echoed(mut tunnel: impl AsyncReadExt + AsyncWrite + Send + Unpin + 'static) -> Tunnel {
    tunnel.write_all(b"hello").await.expect("it is open");
    let mut word = [0; 5];
    tunnel.read_exact(&mut word).await.expect("an echo");
    assert_eq!(&word, b"hello");
    Box::new(tunnel)
}

/// The warnings of a policy.
fn warnings(policy: &str) -> Vec<String> {
    let policy = format!("policy=\"{policy}\"");
    let is_it = |line: &&str| line.contains("WARN") && line.contains(&policy);
    text().lines().filter(is_it).map(str::to_owned).collect()
}

#[tokio::test]
async fn tunnels_whose_tasks_hold_nothing_log_one_warning_per_policy() {
    listen();
    let policies = ["bare-upgrade", "bare-connect", "bare-h2", "bare-extended"];
    for (opens, policy) in ALL.into_iter().zip(policies) {
        let address = serve(policy, Holds::Nothing).await;
        for _ in 0..3 {
            let tunnel = dial(address, opens).await;
            drop(tunnel.expect("it is not limited"));
        }
        let warnings = warnings(policy);
        assert_eq!(warnings.len(), 1, "{opens:?}: {warnings:?}");
        let names_all =
            ["CONNECT", "hyper::upgrade::on", "Permit"].map(|part| warnings[0].contains(part));
        assert_eq!(names_all, [true; 3], "{warnings:?}");
    }
}

#[tokio::test]
async fn a_tunnel_whose_task_holds_the_permit_or_the_request_is_limited_without_a_warning() {
    listen();
    let policies = ["held-upgrade", "held-connect", "held-h2", "held-extended"];
    for (opens, policy) in ALL.into_iter().zip(policies) {
        for holds in [Holds::Permit, Holds::Request] {
            let address = serve(policy, holds).await;
            let first = dial(address, opens).await.expect("there is room");
            assert_eq!(dial(address, opens).await.err(), Some(429), "{opens:?}");
            drop(first);
            let is_free = async || dial(address, opens).await.is_ok();
            eventually("the tunnel's end frees the permit", BOUND, is_free).await;
        }
        assert_eq!(warnings(policy), [""; 0], "{opens:?}");
    }
}

#[tokio::test]
async fn an_upgrade_is_no_warning_if_its_permit_ends_with_the_head() {
    use tower::ServiceExt;
    use tower_semaphore::ReleaseAt;

    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("all"), MemorySemaphore::new());
    let layer = layer.with_policy("head-only").with_release(ReleaseAt::Head);
    let service = layer.layer(service_fn(async |_: Request<String>| {
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        Ok::<_, Infallible>(response)
    }));
    let Ok(response) = service.oneshot(Request::new(String::new())).await;
    assert_eq!(response.status(), 101);
    assert_eq!(warnings("head-only"), [""; 0]);
}

#[tokio::test]
async fn a_connect_that_streams_its_tunnel_as_the_body_is_no_warning() {
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("all"), MemorySemaphore::new());
    let service = layer
        .with_policy("streamed")
        .layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new("bytes of the tunnel".to_owned()))
        }));
    let mut request = Request::new(String::new());
    *request.method_mut() = Method::CONNECT;
    let Ok(response) = service.oneshot(request).await;
    let body = response.into_body().collect().await;
    assert_eq!(body.expect("no error").to_bytes(), "bytes of the tunnel");
    assert_eq!(warnings("streamed"), [""; 0]);
}
