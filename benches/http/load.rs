//! A load generator: connections that send the next request when the last is answered.

use crate::support::figures::Latencies;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{net::TcpStream, task::JoinSet};

pub(crate) const CONNECTIONS: usize = 64;

/// What came out of a while of load.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Answers per second.
    pub(crate) rate: f64,
    pub(crate) latencies: Latencies,
    /// Answers that were not 200.
    pub(crate) refused: u64,
}

/// Keeps all connections busy for `span`, each with an account of its own.
pub(crate) async fn run(address: SocketAddr, span: Duration) -> Outcome {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for number in 0..CONNECTIONS {
        tasks.spawn(connection(
            address,
            format!("account-{number}"),
            start + span,
        ));
    }
    let mut outcome = Outcome::default();
    for (latencies, refused) in tasks.join_all().await {
        outcome.latencies.append(latencies);
        outcome.refused += refused;
    }
    outcome.rate = outcome.latencies.len() as f64 / start.elapsed().as_secs_f64();
    outcome
}

async fn connection(address: SocketAddr, account: String, end: Instant) -> (Latencies, u64) {
    let socket = TcpStream::connect(address).await.expect("the app listens");
    socket.set_nodelay(true).expect("a TCP socket has nodelay");
    let (mut sender, driver) = handshake(TokioIo::new(socket))
        .await
        .expect("the app speaks h1");
    tokio::spawn(driver);
    let (mut latencies, mut refused) = (Latencies::default(), 0);
    let mut start = Instant::now();
    while start < end {
        let status = ask(&mut sender, &account).await;
        latencies.add(start.elapsed());
        refused += u64::from(status != StatusCode::OK);
        start = Instant::now();
    }
    (latencies, refused)
}

async fn ask(sender: &mut SendRequest<Empty<Bytes>>, account: &str) -> StatusCode {
    let request = Request::get("/")
        .header("host", "localhost")
        .header("x-account-id", account);
    let request = request.body(Empty::new()).expect("the request is valid");
    sender.ready().await.expect("the connection is open");
    let response = sender.send_request(request).await.expect("the app answers");
    let status = response.status();
    response
        .into_body()
        .collect()
        .await
        .expect("the body ends well");
    status
}
