//! A connection that sends one request after another.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::net::TcpStream;

pub struct Connection(SendRequest<Empty<Bytes>>);

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.expect("the app listens");
        socket.set_nodelay(true).expect("a TCP socket has nodelay");
        let (sender, driver) = handshake(TokioIo::new(socket))
            .await
            .expect("the app speaks h1");
        tokio::spawn(driver);
        Self(sender)
    }

    /// Sends a request of this account. Returns the response, whose body may still be on its way.
    pub async fn get(&mut self, path: &str, account: &str) -> Response<Incoming> {
        let request = Request::get(path)
            .header("host", "localhost")
            .header("x-account-id", account);
        let request = request.body(Empty::new()).expect("the request is valid");
        self.0.ready().await.expect("the connection is open");
        let response = self.0.send_request(request).await;
        response.expect("the app answers")
    }
}

/// Reads the whole response.
pub async fn read(response: Response<Incoming>) -> (StatusCode, Bytes) {
    let status = response.status();
    let body = response.into_body().collect().await;
    (status, body.expect("the body ends well").to_bytes())
}
