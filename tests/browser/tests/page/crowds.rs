//! More than a page can show: a long queue, many refusals, and a market with many listings. The page draws at most 20
//! waiters or listings, 24 slots, and 6 refusals.
//!
//! Promises: P24.

use crate::{ENDLESS, open_stream, shows_held, start, watch_ann};
use browser::market::{Market, json, status};
use serde_json::Value;
use testing::wait::eventually;

#[tokio::test]
async fn the_head_of_a_long_queue_is_drawn_and_the_rest_is_counted() {
    let (market, browser) = start(&[("LIMIT", "1"), ("WAIT_MS", "600000")]).await;
    let _holder = open_stream(&market).await;
    let mut waiting = Vec::new();
    for _ in 0..90 {
        waiting.push(market.send("GET", ENDLESS).await);
    }
    browser.reads("#queue-note", "90 waiting").await;
    let drawn = "document.querySelectorAll('#queue > li').length === 20";
    browser.shows("its head is drawn", drawn).await;
    browser.reads("#more-waiting", "and 70 behind them").await;
    drop(waiting);
    browser.reads("#queue-note", "nobody waits").await;
    let gone = "!document.getElementById('more-waiting').checkVisibility()";
    browser.shows("no rest is shown", gone).await;
}

#[tokio::test]
async fn some_slots_of_a_high_limit_are_drawn_and_all_permits_are_counted() {
    let (market, browser) = start(&[("LIMIT", "40")]).await;
    let mut streams = Vec::new();
    for _ in 0..30 {
        streams.push(market.send("GET", ENDLESS).await);
    }
    browser.reads("#held-count", "30").await;
    let drawn = "document.querySelectorAll('.slot.held').length === 24";
    browser.shows("some are drawn", drawn).await;
    browser.reads("#more-slots", "and 16 more slots").await;
    // Permits that were not drawn move into free slots that are.
    streams.drain(..20);
    shows_held(&browser, 10).await;
}

#[tokio::test]
async fn many_refusals_at_once_are_counted_and_announced_as_a_number() {
    let (market, browser) = start(&[("LIMIT", "1")]).await;
    let _holder = open_stream(&market).await;
    shows_held(&browser, 1).await;
    browser.run(HEARD, &[]).await;
    for _ in 0..60 {
        let mut refused = market.send("GET", "/market?account=ann").await;
        assert_eq!(status(&mut refused).await, 429);
    }
    browser.reads("#refusals-note", "60 so far").await;
    browser
        .reads("#announcement", "requests were refused")
        .await;
    let heard = browser.run("return window.heard", &[]).await;
    let heard = heard.as_u64().expect("a number");
    // At most about one refusal per second is read aloud; the others are counted. Reading each would make 60.
    assert!(heard < 20, "{heard} were read aloud");
    assert_eq!(browser.texts("#refusals > li").await.len(), 6);
}

#[tokio::test]
async fn the_request_of_one_account_is_served_second_despite_a_hundred_of_another() {
    let settings = [
        ("LIMIT", "200"),
        ("FLEET_LIMIT", "1"),
        ("WAIT_MS", "600000"),
    ];
    let (market, browser) = start(&settings).await;
    // The fleet has one permit, and its queue takes accounts in turns.
    let holder = open_stream(&market).await;
    let first = market.send("GET", ENDLESS).await;
    // This stream must be first in the queue. The order of the others does not matter.
    browser.reads("#fleet-note", "1 waiting").await;
    let mut crowd = Vec::new();
    for _ in 1..100 {
        crowd.push(market.send("GET", ENDLESS).await);
    }
    browser.reads("#fleet-note", "100 waiting").await;
    let mut bob = market.send("GET", "/market?account=bob").await;
    browser.reads("#fleet-note", "101 waiting").await;
    let names = browser.texts("#fleet-queue > li").await;
    assert!(names[1].contains("bob: GET /market"), "{names:?}");
    assert!(
        [0, 2].iter().all(|index| names[*index].contains("ann: ")),
        "{names:?}"
    );
    browser.reads("#more-fleet", "and 81 behind them").await;
    // The first of the crowd is served, and then bob.
    drop(holder);
    browser.reads("#fleet-queue > li", "bob: GET /market").await;
    browser.reads("#fleet-note", "100 waiting").await;
    drop(first);
    assert_eq!(status(&mut bob).await, 200);
}

/// Counts the refusals that a screen reader reads one by one.
const HEARD: &str = "
    window.heard = 0;
    const log = document.getElementById('refusals');
    new MutationObserver((records) => {
        if (log.ariaLive !== 'polite') return;
        for (const record of records) window.heard += record.addedNodes.length;
    }).observe(log, { childList: true });
";

/// Lists an item of an account, whose name must be URL-encoded. Returns the listing.
async fn sell(market: &Market, account: &str, item: &str, price: u32) -> Value {
    let offer = format!(r#"{{"item":"{item}","price":{price}}}"#);
    let target = format!("/market/items?account={account}");
    let mut sent = market.post(&target, &offer).await;
    assert_eq!(status(&mut sent).await, 201);
    json(&mut sent).await
}

/// Lists ten items of an account, at prices above `first`.
async fn list(market: &Market, account: &str, first: u32) {
    for item in 1..=10 {
        let name = format!("{account}-{item}");
        sell(market, account, &name, first + item).await;
    }
}

async fn purchase(market: &Market, listing: &Value, account: &str) {
    let id = listing["id"].as_str().expect("an id");
    let target = format!("/market/items/{id}/purchase?account={account}");
    let mut sent = market.post(&target, "").await;
    assert_eq!(status(&mut sent).await, 200);
}

/// Buys the `count` cheapest listings, five for each buyer, so that no buyer runs out of coins.
async fn buy(market: &Market, count: usize) {
    let mut sent = market.send("GET", "/market?account=looker").await;
    let listings = json(&mut sent).await;
    let all = listings.as_array().expect("a list");
    for (index, listing) in all.iter().take(count).enumerate() {
        purchase(market, listing, &format!("buyer-{}", index / 5)).await;
    }
}

#[tokio::test]
async fn the_cheapest_listings_are_shown_and_dearer_ones_are_counted_as_they_come_and_go() {
    let market = Market::start(&[]).await;
    for seller in 0..12 {
        list(&market, &format!("seller-{seller}"), 10 * seller).await;
    }
    let browser = watch_ann(&market).await;
    browser.reads("#more-listings", "and 100 dearer ones").await;
    list(&market, "late", 500).await;
    browser.reads("#more-listings", "and 110 dearer ones").await;

    buy(&market, 95).await;
    browser.reads("#more-listings", "and 15 dearer ones").await;
    let prices =
        "[...document.querySelectorAll('#listings .price')].map((e) => parseInt(e.innerText))";
    let cheapest =
        format!("{prices}.join() === Array.from({{ length: 20 }}, (_, i) => 96 + i).join()");
    browser.shows("the cheapest are shown", &cheapest).await;
    buy(&market, 25).await;
    let late =
        format!("{prices}.join() === Array.from({{ length: 10 }}, (_, i) => 501 + i).join()");
    browser.shows("the last ones are shown", &late).await;
}

#[tokio::test]
async fn a_trade_goes_from_seller_to_buyer_although_their_names_are_written_from_right_to_left() {
    let (market, browser) = start(&[]).await;
    let (seller, buyer) = ("\u{5d0}\u{5d1}", "\u{5d2}\u{5d3}");
    let (seller_in_url, buyer_in_url) = ("%D7%90%D7%91", "%D7%92%D7%93");
    let item = format!("{seller}-1");
    let listing = sell(&market, seller_in_url, &item, 7).await;
    purchase(&market, &listing, buyer_in_url).await;
    browser.reads("#trades > li", "7 coins").await;
    let mut places = Vec::new();
    eventually("both are drawn", browser::browser::BOUND, async || {
        places.clear();
        for name in [seller, "\u{2192}", buyer] {
            let left = browser.run(LEFT, &[name.into()]).await;
            places.extend(left.as_f64());
        }
        places.len() == 3
    })
    .await;
    assert!(places.is_sorted(), "seller, arrow, buyer: {places:?}");
}

/// The horizontal position at which a text starts in the small print of the latest trade.
const LEFT: &str = "
    const small = document.querySelector('#trades small');
    const walker = document.createTreeWalker(small, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const at = walker.currentNode.data.indexOf(arguments[0]);
        if (at < 0) continue;
        const range = document.createRange();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + arguments[0].length);
        return range.getBoundingClientRect().left;
    }
    return null;
";
