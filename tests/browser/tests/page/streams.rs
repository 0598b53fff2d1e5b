//! The streams that the page itself opens and closes.
//!
//! Promises: P9.

use crate::{ENDLESS, shows_held, start, watch_ann};
use browser::market::Market;
use serde_json::json;

#[tokio::test]
async fn the_sixth_stream_is_refused_and_shows_its_retry_after() {
    let (_market, browser) = start(&[]).await;
    for held in 1..=5 {
        browser.click("#open").await;
        shows_held(&browser, held).await;
    }
    browser.click("#open").await;
    let sixth = "#streams > li:nth-child(6)";
    browser.reads(sixth, "refused, 429").await;
    browser.reads(sixth, "Retry-After: ").await;
    shows_held(&browser, 5).await;

    browser.click("#streams > li:nth-child(1) .stop").await;
    shows_held(&browser, 4).await;
    browser.click("#streams > li:nth-child(5) .plain").await;
    shows_held(&browser, 5).await;
    browser.reads("#streams > li:nth-child(5)", ": open").await;
}

#[tokio::test]
async fn a_refused_stream_is_listed_as_a_stream_and_refusals_of_others_as_refusals() {
    let market = Market::start(&[("LIMIT", "1")]).await;
    let (browser, other) = (watch_ann(&market).await, watch_ann(&market).await);
    browser.click("#open").await;
    browser.reads("#streams > li", ": open").await;
    // A later announcement replaces this one.
    browser.reads("#announcement", "1 of 1 permits held").await;
    browser.click("#open").await;
    let second = "#streams > li:nth-child(2)";
    browser.reads(second, "refused, 429").await;
    browser.reads("#announcement", "Stream 2 was refused").await;
    other.reads("#refusals > li", "GET /market/export").await;
    // The market reports refusals in order.
    let _refused = market.send("GET", "/market?account=ann").await;
    browser.reads("#refusals-note", "1 so far").await;
    let shown = browser.texts("#refusals > li .mark").await;
    assert_eq!(shown, ["GET /market"]);
    other.reads("#refusals-note", "2 so far").await;
}

#[tokio::test]
async fn a_closed_stream_frees_its_slot_within_a_second() {
    let (_market, browser) = start(&[]).await;
    let mut took = Vec::new();
    // On a busy machine some rounds take longer, but not all.
    for _ in 0..5 {
        browser.click("#open").await;
        shows_held(&browser, 1).await;
        browser.run(TIMED_CLOSE, &[]).await;
        browser.shows("the slot is free", "window.took").await;
        let ms = browser.run("return window.took", &[]).await;
        took.push(ms.as_f64().expect("a time"));
    }
    eprintln!("from the click to the free slot, ms: {took:?}");
    assert!(took.iter().any(|ms| *ms < 1_000.0), "{took:?}");
}

/// Closes the stream, and measures the time until its slot is shown as free.
const TIMED_CLOSE: &str = "
    window.took = null;
    const start = performance.now();
    new MutationObserver((_, observer) => {
        if (document.querySelector('.slot.held')) return;
        window.took = performance.now() - start;
        observer.disconnect();
    }).observe(document.getElementById('slots'), { subtree: true, attributes: true });
    document.querySelector('#streams .stop').click();
";

#[tokio::test]
async fn seven_at_once_take_five_slots_and_two_are_refused() {
    let (_market, browser) = start(&[]).await;
    // The first button opens one stream more than the limit of five.
    browser.click("#open-many").await;
    browser.click("#open").await;
    let refused = "document.querySelectorAll('#streams > li[data-state=refused]').length === 2";
    browser.shows("two are refused", refused).await;
    shows_held(&browser, 5).await;
}

#[tokio::test]
async fn a_stream_that_comes_to_its_end_frees_its_slot_by_itself() {
    let (_market, browser) = start(&[]).await;
    browser
        .run(
            "document.getElementById('duration').options[0].value = 1",
            &[],
        )
        .await;
    browser
        .run("document.getElementById('duration').selectedIndex = 0", &[])
        .await;
    browser.click("#open").await;
    browser.reads("#streams > li", ": ended").await;
    browser.reads("#streams > li", "1 row").await;
    shows_held(&browser, 0).await;
}

#[tokio::test]
async fn leaving_the_page_closes_its_streams() {
    let (market, browser) = start(&[]).await;
    browser.click("#open-many").await;
    shows_held(&browser, 5).await;
    browser.open("about:blank").await;
    browser.open(&market.page("ann")).await;
    browser.reads("#connection", "live").await;
    shows_held(&browser, 0).await;

    // Back to the blank page, and to the first visit, which the browser may have kept in its back-forward cache.
    browser.go_back().await;
    browser.go_back().await;
    browser.reads("#connection", "live").await;
    browser.click("#open").await;
    shows_held(&browser, 1).await;
}

#[tokio::test]
async fn the_page_connects_again_to_a_market_that_comes_back() {
    let mut market = Market::start(&[]).await;
    let browser = watch_ann(&market).await;
    let stream = market.send("GET", ENDLESS).await;
    shows_held(&browser, 1).await;
    market.kill().await;
    drop(stream);
    browser
        .reads("#connection", "the market does not answer")
        .await;
    let port = market.url().rsplit(':').next().expect("a port").to_owned();
    let _again = Market::start(&[("PORT", &port)]).await;
    browser.reads("#connection", "live").await;
    shows_held(&browser, 0).await;
}

#[tokio::test]
async fn another_account_can_be_watched_and_the_back_button_returns_to_the_first() {
    let (market, browser) = start(&[]).await;
    let _stream = market.send("GET", ENDLESS).await;
    shows_held(&browser, 1).await;
    browser
        .run(
            "document.getElementById('account').value = arguments[0]",
            &[json!("bob")],
        )
        .await;
    browser.click("#account-form button").await;
    browser.reads("#watched", "bob").await;
    shows_held(&browser, 0).await;
    browser.run("history.back()", &[]).await;
    browser.reads("#watched", "ann").await;
    shows_held(&browser, 1).await;
}

#[tokio::test]
async fn in_shadow_a_stream_beyond_the_limit_is_open_without_a_permit() {
    let (_market, browser) = start(&[("LIMIT", "1"), ("SHADOW", "1")]).await;
    browser.reads("#facts", "in shadow").await;
    browser.click("#open").await;
    browser.click("#open").await;
    browser.reads("#streams > li:nth-child(2)", ": open").await;
    shows_held(&browser, 1).await;
}
