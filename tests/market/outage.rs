//! While Redis does not answer, the market reports that in time. It serves again once Redis is back.
//!
//! Promises: P18.

use crate::{
    BOUND,
    client::{Client, ENDLESS},
    process::Market,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, wait::eventually};

/// The bound for a 503. An attempt takes at most half a second, and the rest is slack for a busy machine.
const REFUSED_WITHIN: Duration = Duration::from_millis(1_500);
/// The time within which a market serves again once its Redis is back.
const SERVES_WITHIN: Duration = Duration::from_secs(2);
/// Longer than any bound here, so that no permit becomes available because a lease ended.
const LEASE_MS: &str = "60000";

/// A market on this server, and a client of ann that it has served.
async fn start(server: &RedisServer) -> (Market, Client) {
    let settings = [("REDIS_URL", &*server.url()), ("LEASE_MS", LEASE_MS)];
    let market = Market::start(&settings).await;
    let ann = market.client("ann");
    assert_eq!(ann.get("/market").await.status(), 200);
    (market, ann)
}

/// Asserts that several requests of several clients each get a 503 in time.
async fn assert_unavailable_to_all(market: &Market) {
    for _ in 0..3 {
        let clients = (0..8).map(|n| market.client(&format!("account-{n}")));
        let tasks =
            clients.map(|client| tokio::spawn(async move { assert_unavailable(&client).await }));
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("it is a 503 in time");
        }
    }
}

async fn assert_unavailable(client: &Client) {
    let start = Instant::now();
    let answer = client.get("/market").await;
    let took = start.elapsed();
    assert_eq!(answer.status(), 503);
    assert!(took < REFUSED_WITHIN, "answered after {took:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let retry_after: u64 = answer.header("retry-after").parse().expect("seconds");
    assert!((1..=30).contains(&retry_after), "{retry_after} s");
    assert_eq!(answer.header("ratelimit"), "", "what is left is unknown");
    let problem = answer.json().await;
    assert_eq!(problem["status"], 503);
    let kind = problem["type"].as_str().expect("a problem has a type");
    assert!(kind.ends_with("#temporary-reduced-capacity"), "{kind}");
}

/// Asserts that the market serves again, with exactly five permits.
async fn assert_serves_again(client: &Client) {
    let mut held = Vec::new();
    // The first shows that the market serves again, and the others only that no permit is missing.
    for bound in [SERVES_WITHIN, BOUND, BOUND, BOUND, BOUND] {
        eventually("one more permit is back", bound, async || {
            let answer = client.get(ENDLESS).await;
            let is_served = answer.status() == 200;
            held.extend(is_served.then_some(answer));
            is_served
        })
        .await;
    }
    eventually("a sixth is refused", BOUND, async || {
        let status = client.get(ENDLESS).await.status();
        assert_ne!(status, 200, "six permits");
        status == 429
    })
    .await;
}

#[tokio::test]
async fn a_market_refuses_requests_while_redis_is_stopped_and_serves_again_afterwards() {
    let server = RedisServer::start();
    let (market, ann) = start(&server).await;
    server.stop();
    assert_unavailable_to_all(&market).await;
    server.cont();
    assert_serves_again(&ann).await;
}

#[tokio::test]
async fn a_restart_of_redis_under_load_is_not_reported_as_a_reached_limit() {
    let mut server = RedisServer::start();
    let (market, ann) = start(&server).await;
    let market = Arc::new(market);
    let ends = Arc::<AtomicBool>::default();
    let load: Vec<_> = (0..8)
        .map(|n| tokio::spawn(count_served(Arc::clone(&market), n, Arc::clone(&ends))))
        .collect();
    for _ in 0..3 {
        server.restart();
        assert_serves_again(&ann).await;
    }
    ends.store(true, Relaxed);
    for served in load {
        let served = served.await.expect("each status was 200 or 503");
        assert!(served > 0, "nothing was served");
    }
}

/// Sends requests until the test ends the load, each of a new account, so that no limit is reached. Returns the number
/// of served ones. All others must get a 503.
async fn count_served(market: Arc<Market>, n: u32, ends: Arc<AtomicBool>) -> u32 {
    let client = market.anonymous_client();
    let mut served = 0;
    for i in 0.. {
        if ends.load(Relaxed) {
            break;
        }
        let path = format!("/market?account={n}-{i}");
        match client.get(&path).await.status() {
            200 => served += 1,
            503 => {}
            status => panic!("{status}"),
        }
    }
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_route_reports_whether_redis_answers() {
    let server = RedisServer::start();
    let (market, _) = start(&server).await;
    let health = market.anonymous_client();
    assert_eq!(health.get("/health").await.status(), 200);
    server.stop();
    let answer = health.get("/health").await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    server.cont();
    eventually("it is healthy again", BOUND, async || {
        health.get("/health").await.status() == 200
    })
    .await;
}
