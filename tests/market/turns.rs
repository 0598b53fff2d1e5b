//! A client that keeps to its limit and sends to two processes by turns.

use crate::{client::Client, process::Market};
use std::time::Duration;
use testing::redis::RedisServer;
use tokio::{task::JoinSet, time::sleep};

const REQUESTS: usize = 500;

/// One in twenty. A machine that is busy holds up releases.
const MOST: usize = REQUESTS / 20;

/// One request after the other. Returns how many were refused.
async fn send(clients: [Client; 2], requests: usize, pause: Duration) -> usize {
    let mut refused = 0;
    for number in 0..requests {
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

/// How many requests of a client are refused that has as many in flight as its limit.
async fn refused(loops: usize, pause: Duration) -> usize {
    let server = RedisServer::start();
    let (url, limit) = (server.url(), loops.to_string());
    let settings = [("REDIS_URL", &*url), ("LIMIT", &*limit)];
    let markets = [
        Market::start(&settings).await,
        Market::start(&settings).await,
    ];
    let mut all = JoinSet::new();
    for _ in 0..loops {
        let clients = markets.each_ref().map(|market| market.client("ann"));
        all.spawn(send(clients, REQUESTS / loops, pause));
    }
    all.join_all().await.into_iter().sum()
}

#[tokio::test]
async fn one_request_after_the_other_is_admitted_under_a_limit_of_one() {
    for pause in [0, 1].map(Duration::from_millis) {
        let refused = refused(1, pause).await;
        assert!(refused <= MOST, "{pause:?}: {refused} of {REQUESTS}");
    }
}

#[tokio::test]
async fn five_requests_at_a_time_are_admitted_under_a_limit_of_five() {
    let refused = refused(5, Duration::ZERO).await;
    assert!(refused <= MOST, "{refused} of {REQUESTS}");
}
