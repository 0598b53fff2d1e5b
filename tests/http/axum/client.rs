//! Clients: hyper's, and a bare socket that can hang up.

use super::server::Server;
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::net::SocketAddr;
use testing::http_requests::{ACCOUNT, request};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// HTTP/1.1, or HTTP/2 with prior knowledge.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Http {
    One,
    Two,
}

pub(crate) const BOTH: [Http; 2] = [Http::One, Http::Two];

#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    hyper: legacy::Client<HttpConnector, Empty<Bytes>>,
}

impl Client {
    pub(crate) fn new(http: Http, server: &Server) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.http2_only(matches!(http, Http::Two));
        Self {
            address: server.address,
            hyper: builder.build_http(),
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        account: &str,
    ) -> Result<Response<Incoming>, legacy::Error> {
        let mut request = request(account);
        let uri = format!("http://{}{path}", self.address);
        *request.uri_mut() = uri.parse().expect("a URI");
        *request.method_mut() = method;
        self.hyper.request(request).await
    }

    /// Sends a request as alice and returns the head of the response.
    pub(crate) async fn get(&self, path: &str) -> Response<Incoming> {
        let response = self.send(Method::GET, path, "alice").await;
        response.expect("a response")
    }

    /// Sends five requests as alice, whose responses the server keeps streaming.
    pub(crate) async fn five(&self) -> [Response<Incoming>; 5] {
        let path = "/stream";
        let five = [path; 5].map(|path| self.get(path));
        let five: Vec<_> = futures_util::future::join_all(five).await;
        five.try_into().expect("five of them")
    }
}

/// Reads a body to its end. Returns its bytes and its trailers.
pub(crate) async fn read(response: Response<Incoming>) -> (Bytes, Option<HeaderMap>) {
    let body = response.into_body().collect().await;
    let body = body.expect("a body that ends well");
    let trailers = body.trailers().cloned();
    (body.to_bytes(), trailers)
}

/// Opens a connection and requests `path` on it as alice.
pub(crate) async fn open(server: &Server, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.expect("a server");
    let request = format!("GET {path} HTTP/1.1\r\nhost: market\r\n{ACCOUNT}: alice\r\n\r\n");
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("a server that reads");
    socket
}

/// Reads the head of the response and nothing after it.
pub(crate) async fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.expect("more of the head"));
    }
    String::from_utf8(head).expect("a head in ASCII")
}
