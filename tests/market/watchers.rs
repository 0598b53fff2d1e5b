//! The cost of watchers in Redis commands: many cost as much as one, and without watchers the cost is zero.
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
async fn many_who_watch_an_account_cost_redis_as_much_as_one_and_nobody_costs_nothing() {
    let server = RedisServer::start();
    let market = Market::start(&[("REDIS_URL", &*server.url())]).await;
    let mut raw = Raw::connect(server.port()).await;
    let nobody = market.nobody();
    let idle = commands_per_second(&mut raw).await;

    let one = feeds(&nobody, 1).await;
    let for_one = commands_per_second(&mut raw).await - idle;
    assert!(for_one > 3.0, "somebody looks: {for_one}");
    let many = feeds(&nobody, 50).await;
    let for_many = commands_per_second(&mut raw).await - idle;
    // If each watcher looked separately, 51 would cost 51 times as much.
    assert!(
        for_many < for_one * 5.0,
        "{for_one}, and {for_many} for all"
    );

    drop((one, many));
    eventually("nobody looks any more", BOUND, async || {
        commands_per_second(&mut raw).await < idle + for_one / 3.0
    })
    .await;
}

#[tokio::test]
async fn a_long_queue_is_counted_and_its_heartbeats_are_not_told() {
    let server = RedisServer::start();
    let settings = [("REDIS_URL", &*server.url()), ("LIMIT", "1")];
    let market = Market::start(&settings).await;
    let _held = streams(&market.client("ann"), 1).await;
    // Another service of the fleet lets more claims wait than the market does.
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let claim = Claim::new("ann").with_limit(1).with_max_waiting(200);
    let claim = claim.with_wait(Duration::from_secs(600));
    let waiting: Vec<_> = (0..150)
        .map(|_| tokio::spawn(store.acquire(claim.clone())))
        .collect();
    let mut feed = Feed::of(&market.nobody(), "ann").await;
    let all_wait = |permits: &Value| permits["queue_length"] == 150;
    let permits = feed.until("permits", all_wait).await;
    assert_eq!(permits["waiting"].as_array().map(Vec::len), Some(100));

    // The holder's lease is refreshed every few seconds. If waiters' heartbeats counted as changes, every look would
    // send an event, some thirty in all.
    let mut told = 0;
    let telling = async {
        loop {
            feed.until("permits", |_| true).await;
            told += 1;
        }
    };
    assert!(timeout(Duration::from_secs(3), telling).await.is_err());
    assert!(told < 10, "{told} times");
    for waiter in waiting {
        waiter.abort();
    }
}
