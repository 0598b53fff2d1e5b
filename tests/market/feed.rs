//! The page's event feed: holders, waiters, refusals and trades.
//!
//! Promises: P24.

use crate::{
    client::{Answer, Client, ENDLESS, streams},
    process::Market,
};
use serde_json::{Value, json};
use testing::wait::eventually;

on_every_store! {
    a_feed_begins_with_the_settings_the_permits_and_the_listings,
    a_feed_tells_who_takes_a_permit_and_who_gives_it_back,
    a_feed_tells_of_each_refusal_and_when_to_come_back,
    a_feed_tells_of_listings_and_trades_and_takes_no_permit,
}

/// The events of a page that watches an account.
pub(crate) struct Feed(Answer);

impl Feed {
    pub(crate) async fn of(client: &Client, account: &str) -> Self {
        let answer = client.get(&format!("/accounts/{account}/events")).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.header("content-type"), "text/event-stream");
        Self(answer)
    }

    /// The data of the next event that has this name and satisfies `fits`.
    pub(crate) async fn until(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (other, data) = self.0.event().await;
            if other == name && fits(&data) {
                return data;
            }
        }
    }

    /// Waits until `held` permits are held.
    async fn held(&mut self, held: usize) -> Value {
        let count = |data: &Value| data["held"].as_array().map(Vec::len) == Some(held);
        self.until("permits", count).await
    }
}

async fn a_feed_begins_with_the_settings_the_permits_and_the_listings(market: &Market) {
    let bob = market.client("bob");
    assert_eq!(bob.list("bob-1", 300).await.status(), 201);
    let mut feed = Feed::of(&market.nobody(), "ann").await;
    let (name, settings) = feed.0.event().await;
    assert_eq!(name, "market");
    assert_eq!(
        (&settings["limit"], &settings["wait_ms"]),
        (&json!(5), &json!(0))
    );

    let (mut permits, mut listings) = (None, None);
    while permits.is_none() || listings.is_none() {
        let (name, data) = feed.0.event().await;
        match &*name {
            "permits" => permits = Some(data),
            "listings" => listings = Some(data),
            // Bob's listing may also arrive late, as an event.
            "listing" => {}
            other => panic!("{other} comes too early"),
        }
    }
    let empty = json!([]);
    let permits = permits.expect("permits");
    assert_eq!((&permits["held"], &permits["waiting"]), (&empty, &empty));
    let listings = listings.expect("listings");
    assert_eq!(listings["total"], 1);
    assert_eq!(listings["listings"][0]["item"], "bob-1");
}

async fn a_feed_tells_who_takes_a_permit_and_who_gives_it_back(market: &Market) {
    let mut feed = Feed::of(&market.nobody(), "ann").await;
    feed.held(0).await;
    let mut held = streams(&market.client("ann"), 2).await;
    let permits = feed.held(2).await;
    assert_eq!(permits["limit"], 5);
    let label = permits["held"][0]["label"].as_str().expect("a label");
    assert!(label.contains("/market/export"), "{label}");
    held.pop();
    feed.held(1).await;
    drop(held);
    feed.held(0).await;
}

async fn a_feed_tells_of_each_refusal_and_when_to_come_back(market: &Market) {
    let ann = market.client("ann");
    let mut anns = Feed::of(&market.nobody(), "ann").await;
    let mut bobs = Feed::of(&market.nobody(), "bob").await;
    let _held = streams(&ann, 5).await;
    let refused = ann.get(ENDLESS).await;
    assert_eq!(refused.status(), 429);
    let told = anns.until("refusal", |_| true).await;
    assert_eq!(told["request"], "GET /market/export");
    assert_eq!(told["status"], 429);
    assert_eq!(
        told["retry_after"].to_string(),
        refused.header("retry-after")
    );

    // Only ann's watchers are notified: the first refusal on bob's feed is his own.
    let _held = streams(&market.client("bob"), 5).await;
    assert_eq!(market.client("bob").get("/market").await.status(), 429);
    let told = bobs.until("refusal", |_| true).await;
    assert_eq!(told["request"], "GET /market");
}

async fn a_feed_tells_of_listings_and_trades_and_takes_no_permit(market: &Market) {
    let (ann, bob) = (market.client("ann"), market.client("bob"));
    let mut feed = Feed::of(&market.nobody(), "ann").await;
    feed.held(0).await;
    let _held = streams(&ann, 4).await;
    let listing = ann.list("ann-1", 300).await;
    assert_eq!(listing.status(), 201, "the fifth permit is free");
    let id = listing.json().await["id"].clone();
    let told = feed.until("listing", |_| true).await;
    assert_eq!((&told["id"], &told["item"]), (&id, &json!("ann-1")));
    let bought = bob.purchase(id.as_str().expect("an id")).await;
    assert_eq!(bought.status(), 200);
    let told = feed.until("trade", |_| true).await;
    assert_eq!((&told["id"], &told["buyer"]), (&id, &json!("bob")));
}

#[tokio::test]
async fn a_feed_tells_who_waits_in_order() {
    let market = Market::start(&[("LIMIT", "1"), ("WAIT_MS", "60000")]).await;
    let ann = market.client("ann");
    let mut feed = Feed::of(&market.nobody(), "ann").await;
    let _held = streams(&ann, 1).await;
    let mut waiting = Vec::new();
    for (path, length) in [("/market/events", 1), ("/market/export", 2), ("/market", 3)] {
        let ann = ann.clone();
        let task = async move { ann.try_send(ann.request(http::Method::GET, path), "").await };
        waiting.push(tokio::spawn(task));
        let count = |data: &Value| data["waiting"].as_array().map(Vec::len) == Some(length);
        let permits = feed.until("permits", count).await;
        let last = permits["waiting"][length - 1]["label"].as_str();
        assert!(last.is_some_and(|label| label.ends_with(path)), "{permits}");
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_request_to_stop_ends_the_feed_and_then_the_market() {
    let market = Market::start(&[]).await;
    let mut feed = Feed::of(&market.nobody(), "ann").await;
    feed.held(0).await;
    market.terminate();
    while feed.0.try_event().await.is_some() {}
    assert!(market.ended().await.success());
}

#[tokio::test]
async fn pages_beyond_the_limit_are_refused_and_take_no_place_of_others() {
    let market = Market::start(&[]).await;
    let nobody = market.nobody();
    let mut feeds = Vec::new();
    for _ in 0..256 {
        feeds.push(Feed::of(&nobody, "ann").await);
    }
    let refused = nobody.get("/accounts/ann/events").await;
    assert_eq!(refused.status(), 429);
    assert_ne!(refused.header("retry-after"), "");
    assert_eq!(market.client("ann").get("/market").await.status(), 200);
    feeds.pop();
    let again = async || nobody.get("/accounts/ann/events").await.status() == 200;
    eventually("a page is admitted", crate::BOUND, again).await;
}
