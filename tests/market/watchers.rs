//! The cost of the feeds that watch an account, in Redis commands: many cost as much as one, and closed ones cost
//! nothing.
//!
//! Promises: P24.

use crate::{
    BOUND,
    client::streams,
    feed::{Feed, feeds},
    process::Market,
};
use serde_json::Value;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::{Instant, sleep, timeout};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// The number of commands that Redis runs in one second.
async fn commands_per_second(raw: &mut Raw) -> f64 {
    raw.reset_stats().await;
    let start = Instant::now();
    sleep(Duration::from_secs(1)).await;
    let stats = raw.commandstats().await;
    let calls: u64 = stats.values().sum();
    calls as f64 / start.elapsed().as_secs_f64()
}

#[tokio::test]
async fn many_watchers_of_an_account_cost_redis_as_much_as_one_and_closed_ones_cost_nothing() {
    let server = RedisServer::start();
    let market = Market::start(&[("REDIS_URL", &*server.url())]).await;
    let mut raw = Raw::connect(server.port()).await;
    let anonymous = market.anonymous_client();
    let idle = commands_per_second(&mut raw).await;

    let one = feeds(&anonymous, 1).await;
    let for_one = commands_per_second(&mut raw).await - idle;
    // The market reads an account that has watchers up to ten times a second.
    assert!(for_one > 3.0, "a watcher costs nothing: {for_one}");
    let many = feeds(&anonymous, 50).await;
    let for_many = commands_per_second(&mut raw).await - idle;
    // If the market read the account for each watcher, the 51 would cost 51 times as much.
    assert!(
        for_many < for_one * 5.0,
        "{for_one}, and {for_many} for all"
    );

    drop((one, many));
    eventually("the watchers cost nothing any more", BOUND, async || {
        commands_per_second(&mut raw).await < idle + for_one / 3.0
    })
    .await;
}

#[tokio::test]
async fn a_long_queue_is_counted_and_its_heartbeats_cause_no_events() {
    let server = RedisServer::start();
    let settings = [("REDIS_URL", &*server.url()), ("LIMIT", "1")];
    let market = Market::start(&settings).await;
    let _held = streams(&market.client("ann"), 1).await;
    // Claims of another service, which lets more of them wait than the market does.
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let claim = Claim::new("ann").with_limit(1).with_max_waiting(200);
    let claim = claim.with_wait(Duration::from_secs(600));
    let waiting: Vec<_> = (0..150)
        .map(|_| tokio::spawn(store.acquire(claim.clone())))
        .collect();
    let mut feed = Feed::open(&market.anonymous_client(), "ann").await;
    let all_wait = |permits: &Value| permits["queue_length"] == 150;
    let permits = feed.wait_for("permits", all_wait).await;
    // An event has no more waiters than these.
    assert_eq!(permits["waiting"].as_array().map(Vec::len), Some(100));

    // The refresh of the holder's lease causes an event every few seconds. If waiters' heartbeats counted as changes,
    // each read of the account would cause one, some thirty in all.
    let mut events = 0;
    let counting = async {
        loop {
            feed.wait_for("permits", |_| true).await;
            events += 1;
        }
    };
    assert!(timeout(Duration::from_secs(3), counting).await.is_err());
    assert!(events < 10, "{events} events");
    for waiter in waiting {
        waiter.abort();
    }
}
