//! Over Redis the page shows the permits of all processes.
//!
//! Promises: P24.

use crate::{ENDLESS, open_stream, shows_held, shows_waiting, start, watch_ann};
use browser::{
    browser::BOUND,
    market::{Market, status},
};
use std::time::Duration;
use testing::{redis::RedisServer, wait::eventually};
use tower_semaphore::{Operate, Policy, RedisSemaphore};

#[tokio::test]
async fn a_killed_process_holds_its_slots_until_its_leases_end() {
    let server = RedisServer::start();
    let url = server.url();
    let settings = [("REDIS_URL", &*url), ("LEASE_MS", "3000")];
    let here = Market::start(&settings).await;
    let mut there = Market::start(&settings).await;
    let browser = watch_ann(&here).await;
    let _own = open_stream(&here).await;
    let mut others = Vec::new();
    for _ in 0..4 {
        let stream = open_stream(&there).await;
        others.push(stream);
    }
    shows_held(&browser, 5).await;
    let holders = browser.texts(".slot .name").await;
    let distinct: std::collections::HashSet<_> = holders.iter().collect();
    assert_eq!(distinct.len(), 2, "{holders:?}");

    there.kill().await;
    drop(others);
    // The killed process has released no permits. Their leases count down, and then the slots are free.
    browser.reads(".slot.held .lease", "lease ").await;
    shows_held(&browser, 1).await;
    assert_eq!(status_of_another_stream(&here).await, 200);
}

/// The status of one more stream of ann.
async fn status_of_another_stream(market: &Market) -> u16 {
    status(&mut market.send("GET", ENDLESS).await).await
}

#[tokio::test]
async fn the_rest_and_the_note_of_a_pause_are_shown_until_it_ends() {
    let server = RedisServer::start();
    let here = Market::start(&[("REDIS_URL", &server.url())]).await;
    let browser = watch_ann(&here).await;
    let operator = RedisSemaphore::builder().operator(true);
    let operator = operator.connect(server.url()).await.expect("it connects");
    let (policy, ann) = (Policy::DEFAULT, "ann".into());
    let hour = Duration::from_secs(3_600);
    let paused = operator.pause(&policy, &ann, hour, "<b>429</b>").await;
    paused.expect("an answer");
    browser.reads("#pause", "paused for ").await;
    let text = browser.text("#pause").await;
    assert!(text.ends_with(": <b>429</b>"), "{text}");
    browser
        .reads("#announcement", "0 of 5 permits held, paused")
        .await;
    // The pause does not count as a waiter.
    shows_waiting(&browser, 0).await;
    browser
        .shows(
            "it counts down",
            "!document.getElementById('pause').innerText.includes('1:00:00 h')",
        )
        .await;

    assert!(operator.resume(&policy, &ann).await.expect("an answer"));
    browser
        .shows("it goes on", "document.getElementById('pause').hidden")
        .await;
    assert_eq!(status_of_another_stream(&here).await, 200);
}

#[tokio::test]
async fn waiters_in_another_process_are_shown_in_order() {
    let server = RedisServer::start();
    let url = server.url();
    let settings = [("REDIS_URL", &*url), ("LIMIT", "1"), ("WAIT_MS", "60000")];
    let (here, there) = (
        Market::start(&settings).await,
        Market::start(&settings).await,
    );
    let browser = watch_ann(&here).await;
    let holder = there.send("GET", ENDLESS).await;
    shows_held(&browser, 1).await;
    let mut waiting = Vec::new();
    for (market, length) in [(&there, 1), (&here, 2), (&there, 3)] {
        waiting.push(market.send("GET", ENDLESS).await);
        shows_waiting(&browser, length).await;
    }
    let rows = browser.texts("#queue > li small").await;
    let process = |row: &str| row.split(", waits").next().expect("a process").to_owned();
    assert_eq!(process(&rows[0]), process(&rows[2]));
    assert_ne!(process(&rows[0]), process(&rows[1]));
    drop(holder);
    shows_waiting(&browser, 2).await;
    assert_eq!(
        process(&browser.text("#queue > li small").await),
        process(&rows[1])
    );
}

#[tokio::test]
async fn the_page_reports_a_dead_store_and_goes_on_when_it_returns() {
    let mut server = RedisServer::start();
    let (market, browser) = start(&[("REDIS_URL", &*server.url()), ("LEASE_MS", "3000")]).await;
    browser.click("#open").await;
    shows_held(&browser, 1).await;
    server.kill();
    browser.reads("#connection", "does not answer").await;
    browser.reads("#streams > li", "cut off").await;
    server.restart();
    browser.reads("#connection", "live").await;
    shows_held(&browser, 0).await;
    // The market may refuse claims until the server has answered one.
    eventually("permits are granted again", BOUND, async || {
        let mut sent = market.send("GET", "/market?account=bob").await;
        status(&mut sent).await == 200
    })
    .await;
    browser.click("#open").await;
    shows_held(&browser, 1).await;
    browser.click("#sell-form button").await;
    browser.reads("#listings > li", "ann-").await;
}
