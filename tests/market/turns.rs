//! A client that keeps to its limit and alternates between two processes.
//!
//! Promises: P22.

use crate::process::Market;
use std::{
    io::{Read, Write},
    net::TcpStream,
    thread::sleep,
    time::Duration,
};
use testing::redis::RedisServer;
use tokio::task::JoinSet;

const REQUESTS: usize = 500;

/// The largest acceptable number of refusals. On a busy machine some releases take longer than a response's head waits
/// for them. If no head waited for its release, one request in eight would be refused; if a release waited for another
/// call, nearly half.
const MAX_REFUSED: usize = 25;

/// A blocking connection, so that the next request follows faster than most releases.
struct Connection(TcpStream);

impl Connection {
    fn open(market: &Market) -> Self {
        let address = market.url().strip_prefix("http://").expect("a URL");
        let stream = TcpStream::connect(address).expect("it listens");
        let bound = Some(Duration::from_secs(60));
        stream.set_read_timeout(bound).expect("a socket has it");
        Self(stream)
    }

    /// Sends a request, reads its answer to the end, and returns the status.
    fn status(&mut self) -> u16 {
        let request = "GET /market HTTP/1.1\r\nhost: market\r\nx-account-id: ann\r\n\r\n";
        let sent = self.0.write_all(request.as_bytes());
        sent.expect("it is connected");
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.0.read(&mut buffer).expect("it answers");
            assert!(read > 0, "it closes midway");
            answer.extend_from_slice(&buffer[..read]);
            if let Some(status) = parse_status(&answer) {
                return status;
            }
        }
    }
}

/// The status of an answer, or `None` if the answer is not complete yet.
fn parse_status(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (_, length) = head.split_once("content-length: ")?;
    let length: usize = length.lines().next()?.parse().expect("a number");
    // The head begins with `http/1.1 200`.
    (body.len() >= length).then(|| head[9..12].parse().expect("a status"))
}

/// Sends requests one after another, over both connections in turn. Returns the number of refused ones.
fn send(mut connections: [Connection; 2], requests: usize, pause: Duration) -> usize {
    let mut refused = 0;
    for number in 0..requests {
        match connections[number % 2].status() {
            // On a busy machine the store may be too slow, and the status is then 503.
            200 | 503 => {}
            429 => refused += 1,
            other => panic!("unexpected: {other}"),
        }
        sleep(pause);
    }
    refused
}

/// The number of refusals of a client whose limit is its number of loops. Each loop has one request in flight.
async fn count_refused(loops: usize, pause: Duration) -> usize {
    let server = RedisServer::start();
    let settings = [("REDIS_URL", server.url()), ("LIMIT", loops.to_string())];
    let settings = settings.each_ref().map(|(name, value)| (*name, &**value));
    let markets = [
        Market::start(&settings).await,
        Market::start(&settings).await,
    ];
    let mut running = JoinSet::new();
    for _ in 0..loops {
        let connections = markets.each_ref().map(Connection::open);
        running.spawn_blocking(move || send(connections, REQUESTS / loops, pause));
    }
    running.join_all().await.into_iter().sum()
}

async fn assert_few_refused(loops: usize) {
    for pause in [0, 1].map(Duration::from_millis) {
        let refused = count_refused(loops, pause).await;
        println!("{loops} loops, {pause:?}: {refused} of {REQUESTS}");
        assert!(refused <= MAX_REFUSED, "{pause:?}: {refused} of {REQUESTS}");
    }
}

#[tokio::test]
async fn one_request_after_the_other_is_admitted_under_a_limit_of_one() {
    assert_few_refused(1).await;
}

#[tokio::test]
async fn five_loops_are_admitted_under_a_limit_of_five() {
    assert_few_refused(5).await;
}
