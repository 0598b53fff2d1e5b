//! Listing or buying an item takes that item's lock.
//!
//! Promises: P1.

use crate::{
    fleet::{listed, markets},
    soon,
};
use serde_json::json;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Lock, LockGuard, RedisSemaphore};

const BOUND: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(1);

/// Takes an item's lock, as a market does.
async fn lock(server: &RedisServer, item: &str) -> LockGuard {
    let builder = RedisSemaphore::builder().lease(LEASE);
    let store = builder.connect(server.url()).await.expect("it connects");
    let lock = Lock::new(store, format!("item:{item}"));
    lock.acquire(BOUND).await.expect("it is free in time")
}

#[tokio::test]
async fn an_item_whose_lock_is_held_is_not_sold_and_others_are() {
    let server = RedisServer::start();
    let [one, two] = markets(&server, "1000").await;
    let locked = listed(one.client("ann").list("ann-1", 300).await).await;
    let free = listed(one.client("ann").list("ann-2", 300).await).await;
    let guard = lock(&server, "ann-1").await;
    let bob = two.client("bob");
    let buying = tokio::spawn({
        let (bob, locked) = (bob.clone(), locked.clone());
        async move { bob.purchase(&locked).await.status() }
    });
    assert_eq!(bob.purchase(&free).await.status(), 200);
    let for_sale = bob.get("/market").await.json().await;
    assert_eq!(
        for_sale[0]["id"],
        json!(locked),
        "sold under another's lock"
    );
    assert!(!buying.is_finished());

    assert!(guard.release().await);
    assert_eq!(soon("it is sold", buying).await.expect("it is bought"), 200);
}

#[tokio::test]
async fn a_buyer_that_was_stopped_does_not_buy_an_item_that_was_sold_in_between() {
    let server = RedisServer::start();
    let [one, two] = markets(&server, "1000").await;
    let id = listed(one.client("ann").list("ann-1", 300).await).await;
    // The first process waits for the lock and is stopped. While it is stopped, it is granted the lock, and the lease
    // ends.
    let guard = lock(&server, "ann-1").await;
    let stopped = tokio::spawn({
        let (late, id) = (one.client("late"), id.clone());
        async move { late.try_purchase(&id).await }
    });
    let bob = two.client("bob");
    eventually("it waits", BOUND, async || has_waiter(&server).await).await;
    one.stop();
    assert!(guard.release().await);
    // If the answer to a purchase is lost, the next one finds the item sold (409).
    eventually("another buys it", BOUND * 3, async || {
        [200, 409].contains(&bob.purchase(&id).await.status())
    })
    .await;

    one.cont();
    // A long stop also ends the request's permit. Its answer may then break off.
    let answer = soon("an answer", stopped).await.expect("it ends");
    let status = answer.map(|answer| answer.status());
    assert!(matches!(status, None | Some(409 | 503)), "{status:?}");
    let mut funds = Vec::new();
    for account in ["ann", "bob", "late"] {
        funds.push(bob.account(account).await["funds"].clone());
    }
    // Each account had 1,000 coins.
    assert_eq!(json!(funds), json!([1_300, 700, 1_000]));
}

/// True if a claim waits for the lock of `ann-1`.
async fn has_waiter(server: &RedisServer) -> bool {
    let mut raw = Raw::connect(server.port()).await;
    let queue = raw.zmembers("semaphore:2:{lock:item%3Aann-1}:queue").await;
    !queue.is_empty()
}
