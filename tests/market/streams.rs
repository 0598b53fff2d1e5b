//! Long responses: events and exports.
//!
//! Promises: P9.

use crate::{BOUND, client::streams, process::Market};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testing::wait::eventually;
use tokio::time::sleep;

on_every_store! {
    events_tell_of_listings_and_trades,
    an_export_has_its_lines_and_takes_its_time,
    an_export_with_bad_parameters_is_refused,
}

async fn events_tell_of_listings_and_trades(market: &Market) {
    let (ann, bob) = (market.client("ann"), market.client("bob"));
    let mut events = market.nobody().get("/market/events?account=eve").await;
    assert_eq!(events.header("content-type"), "text/event-stream");

    let listing = ann.list("ann-1", 300).await.json().await;
    let (name, data) = events.event().await;
    assert_eq!((&*name, &data["id"]), ("listing", &listing["id"]));
    assert_eq!(
        (&data["item"], &data["price"]),
        (&json!("ann-1"), &json!(300))
    );

    let id = listing["id"].as_str().expect("an id");
    assert_eq!(bob.purchase(id).await.status(), 200);
    let (name, data) = events.event().await;
    assert_eq!((&*name, &data["id"]), ("trade", &listing["id"]));
    assert_eq!(
        (&data["seller"], &data["buyer"]),
        (&json!("ann"), &json!("bob"))
    );
}

async fn an_export_has_its_lines_and_takes_its_time(market: &Market) {
    let ann = market.client("ann");
    assert_eq!(ann.list("ann-1", 300).await.status(), 201);

    let start = Instant::now();
    let export = ann.get("/market/export?rows=5&interval_ms=100").await;
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let text = export.text().await;
    let took = start.elapsed();

    let rows: Vec<Value> = text.lines().map(|row| row.parse().expect("JSON")).collect();
    let numbers: Vec<_> = rows.iter().filter_map(|row| row["row"].as_u64()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(
        (&rows[4]["listed"], &rows[4]["cheapest"]),
        (&json!(1), &json!(300))
    );
    let expected = Duration::from_millis(500)..Duration::from_secs(5);
    assert!(expected.contains(&took), "{took:?}");
}

async fn an_export_with_bad_parameters_is_refused(market: &Market) {
    let answer = market.client("ann").get("/market/export?rows=many").await;
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.header("content-type"), "application/problem+json");
}

#[tokio::test]
async fn a_client_that_stops_reading_loses_its_permit() {
    let settings = [("LIMIT", "1"), ("MAX_STALL_MS", "500")];
    let market = Market::start(&settings).await;
    let ann = market.client("ann");
    let unread = ann
        .get("/market/export?rows=4294967295&interval_ms=0")
        .await;
    assert_eq!(unread.status(), 200);
    // The buffers of both systems must fill first, which takes seconds on a busy machine.
    eventually("the stall ends", 6 * BOUND, async || {
        ann.get("/market").await.status() == 200
    })
    .await;
}

#[tokio::test]
async fn a_slow_export_is_no_stalled_client() {
    let settings = [("LIMIT", "1"), ("MAX_STALL_MS", "500")];
    let market = Market::start(&settings).await;
    let ann = market.client("ann");
    let _slow = streams(&ann, 1).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(ann.get("/market").await.status(), 429);
}
