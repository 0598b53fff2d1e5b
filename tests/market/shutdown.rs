//! The market stops at a signal.
//!
//! Promises: P9, P11.

use crate::{process::Market, soon};
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// After the signal, a response may continue for three seconds. The rest is slack for a busy machine.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_request_to_stop_ends_the_events_and_then_the_market() {
    let market = Market::start(&[]).await;
    let events = market.client("ann").get("/market/events").await;
    assert_eq!(events.status(), 200);

    let start = Instant::now();
    market.terminate();
    assert_eq!(events.text().await, "");
    assert!(market.wait_until_ended().await.success());
    assert!(start.elapsed() < STOPS_WITHIN);
}

#[tokio::test]
async fn a_request_to_stop_lets_an_export_finish() {
    let market = Market::start(&[]).await;
    let ann = market.client("ann");
    let export = ann.get("/market/export?rows=10&interval_ms=50").await;
    market.terminate();
    assert_eq!(export.text().await.lines().count(), 10);
    assert!(market.wait_until_ended().await.success());
}

#[tokio::test]
async fn an_endless_export_does_not_keep_the_market_from_stopping() {
    let market = Market::start(&[]).await;
    let ann = market.client("ann");
    let export = ann.get("/market/export?rows=9&interval_ms=60000").await;
    assert_eq!(export.status(), 200);

    let start = Instant::now();
    market.terminate();
    assert!(market.wait_until_ended().await.success());
    assert!(start.elapsed() < STOPS_WITHIN);
}

#[tokio::test]
async fn connections_that_were_made_before_a_request_to_stop_are_served() {
    let market = Market::start(&[]).await;
    let address = market.url().strip_prefix("http://").expect("a URL");
    // While the process stands still, the system accepts the connections.
    market.stop();
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = TcpStream::connect(address).await.expect("a backlog");
        let request = format!(
            "GET /market?account={number} HTTP/1.1\r\nhost: market\r\nconnection: close\r\n\r\n"
        );
        let sent = client.write_all(request.as_bytes()).await;
        sent.expect("a system that buffers");
        clients.push(client);
    }
    market.terminate();
    market.cont();
    for mut client in clients {
        let mut answer = String::new();
        let read = soon("an answer", client.read_to_string(&mut answer)).await;
        read.expect("the connection is not reset");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(market.wait_until_ended().await.success());
}
