//! A client that keeps to its limit and sends to two processes by turns.

use crate::{client::Client, process::Market};
use std::time::Duration;
use testing::redis::RedisServer;
use tokio::time::sleep;

const REQUESTS: usize = 500;

/// Three in ten. Nearly half were refused when a release waited for a call to ride on.
const MOST: usize = REQUESTS * 3 / 10;

/// One request after the other. Returns how many were refused.
async fn send(clients: [Client; 2], pause: Duration) -> usize {
    let mut refused = 0;
    for number in 0..REQUESTS {
        let answer = clients[number % 2].get("/market").await;
        match answer.status() {
            // On a busy machine the store may be too slow, which is 503.
            200 | 503 => {}
            429 => refused += 1,
            other => panic!("unexpected: {other}"),
        }
        answer.text().await;
        sleep(pause).await;
    }
    refused
}

/// How many requests of a client are refused that has one in flight at a time, as its limit permits.
async fn refused(pause: Duration) -> usize {
    let server = RedisServer::start();
    let settings = [("REDIS_URL", server.url()), ("LIMIT", "1".to_owned())];
    let settings = settings.each_ref().map(|(name, value)| (*name, &**value));
    let markets = [
        Market::start(&settings).await,
        Market::start(&settings).await,
    ];
    send(markets.each_ref().map(|market| market.client("ann")), pause).await
}

#[tokio::test]
async fn one_request_after_the_other_is_admitted_under_a_limit_of_one() {
    for pause in [0, 1].map(Duration::from_millis) {
        let refused = refused(pause).await;
        assert!(refused <= MOST, "{pause:?}: {refused} of {REQUESTS}");
    }
}
