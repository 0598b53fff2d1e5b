//! At a signal the market stops.

use crate::process::Market;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_request_to_stop_ends_the_events_and_then_the_market() {
    let market = Market::start(&[]).await;
    let events = market.client("ann").get("/market/events").await;
    assert_eq!(events.status(), 200);

    let start = Instant::now();
    market.terminate();
    assert_eq!(events.text().await, "");
    assert!(market.ended().await.success());
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_request_to_stop_lets_an_export_finish() {
    let market = Market::start(&[]).await;
    let ann = market.client("ann");
    let export = ann.get("/market/export?rows=10&interval_ms=50").await;
    market.terminate();
    assert_eq!(export.text().await.lines().count(), 10);
    assert!(market.ended().await.success());
}

#[tokio::test]
async fn an_export_without_an_end_does_not_keep_the_market_from_its_own() {
    let market = Market::start(&[]).await;
    let ann = market.client("ann");
    let export = ann.get("/market/export?rows=9&interval_ms=60000").await;
    assert_eq!(export.status(), 200);

    let start = Instant::now();
    market.terminate();
    assert!(market.ended().await.success());
    assert!(start.elapsed() < Duration::from_secs(10));
}
