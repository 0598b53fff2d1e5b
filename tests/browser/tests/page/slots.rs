//! The slots of the account fill and empty.
//!
//! Promises: P24.

use crate::{ENDLESS, open_stream, shows_held, shows_waiting, start};
use testing::redis::RedisServer;

#[tokio::test]
async fn streams_outside_the_page_fill_slots_that_show_their_holder() {
    let (market, browser) = start(&[]).await;
    shows_held(&browser, 0).await;

    let stream = open_stream(&market).await;
    shows_held(&browser, 1).await;
    let slot = browser.text(".slot.held").await;
    assert!(slot.contains("/market/export"), "{slot}");
    assert!(slot.contains("pid "), "{slot}");

    drop(stream);
    shows_held(&browser, 0).await;
}

#[tokio::test]
async fn an_account_that_has_all_its_permits_looks_full() {
    let (market, browser) = start(&[("LIMIT", "2")]).await;
    let look = "const section = document.getElementById('slots-section');
        return [section.innerText.includes('full'), getComputedStyle(section).borderColor]";
    let first = market.send("GET", ENDLESS).await;
    shows_held(&browser, 1).await;
    let with_room = browser.run(look, &[]).await;
    assert_eq!(with_room[0], false);
    let second = market.send("GET", ENDLESS).await;
    shows_held(&browser, 2).await;
    let full = browser.run(look, &[]).await;
    assert_eq!(full[0], true);
    assert_ne!(full[1], with_room[1]);
    browser
        .reads("#announcement", "2 of 2 permits held, full")
        .await;
    drop((first, second));
    shows_held(&browser, 0).await;
    assert_eq!(browser.run(look, &[]).await, with_room);
}

#[tokio::test]
async fn the_bar_of_a_lease_is_as_long_as_the_number_beside_it() {
    let server = RedisServer::start();
    let (market, browser) = start(&[("REDIS_URL", &server.url()), ("LEASE_MS", "3000")]).await;
    let _stream = market.send("GET", ENDLESS).await;
    shows_held(&browser, 1).await;
    browser.run(COMPARE, &[]).await;
    browser
        .shows(
            "some refreshes were seen",
            "window.seen > 60 && window.rises > 2",
        )
        .await;
    let apart = browser.run("return window.apart", &[]).await;
    // The number is rounded to a tenth of a second.
    assert!(apart.as_f64().expect("seconds") < 0.06, "{apart} s");
}

/// Compares the bar with the number in each frame, and keeps the largest difference, in seconds. The bar is a fraction
/// of the lease of three seconds. Also counts the refreshes, as rises of the number.
const COMPARE: &str = "
    Object.assign(window, { seen: 0, rises: 0, apart: 0, last: 0 });
    const look = () => {
        const slot = document.querySelector('.slot.held');
        const number = parseFloat(slot.querySelector('.lease').innerText.replace('lease', ''));
        const bar = parseFloat(getComputedStyle(slot.querySelector('.meter > i')).scale);
        window.apart = Math.max(window.apart, Math.abs(3 * bar - Math.min(3, number)));
        window.rises += number > window.last;
        window.last = number;
        window.seen += 1;
        requestAnimationFrame(look);
    };
    look();
";

#[tokio::test]
async fn a_permit_keeps_its_slot_while_others_end() {
    let (market, browser) = start(&[]).await;
    let mut streams = Vec::new();
    for held in 1..=3 {
        streams.push(market.send("GET", ENDLESS).await);
        shows_held(&browser, held).await;
    }
    drop(streams.remove(1));
    shows_held(&browser, 2).await;
    let states = browser.texts(".slot .state").await;
    let held: Vec<_> = states.iter().map(|state| state.contains("held")).collect();
    assert_eq!(held, [true, false, true, false, false]);
}

#[tokio::test]
async fn a_permit_is_ended_by_its_button_and_its_stream_is_cut() {
    let (_market, browser) = start(&[]).await;
    browser.click("#open").await;
    shows_held(&browser, 1).await;
    browser.reads("#streams > li", ": open").await;

    browser.click(".slot.held button").await;
    shows_held(&browser, 0).await;
    browser.reads("#streams > li", ": cut off").await;
}

#[tokio::test]
async fn waiters_are_shown_and_granted_in_order() {
    let (market, browser) = start(&[("LIMIT", "1"), ("WAIT_MS", "60000")]).await;
    let holder = market.send("GET", ENDLESS).await;
    shows_held(&browser, 1).await;
    let mut waiting = Vec::new();
    for (route, length) in [("events", 1), ("export", 2), ("", 3)] {
        let target = format!("/market/{route}?account=ann&rows=9&interval_ms=60000");
        // `/market` itself has no slash at its end.
        let target = target.replace("/?", "?");
        waiting.push(market.send("GET", &target).await);
        shows_waiting(&browser, length).await;
    }
    let rows = browser.texts("#queue > li").await;
    for (row, words) in rows
        .iter()
        .zip(["/market/events", "/market/export", "/market"])
    {
        assert!(row.contains(words), "{words}: {rows:?}");
    }
    assert!(rows[0].starts_with("1."), "{rows:?}");

    drop(holder);
    browser.reads(".slot.held", "/market/events").await;
    browser.reads("#queue > li", "/market/export").await;
}
