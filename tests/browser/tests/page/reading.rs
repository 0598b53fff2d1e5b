//! The page as a screen reader presents it.
//!
//! Promises: none.

use crate::{ENDLESS, shows_held, start};
use browser::market::Market;
use serde_json::Value;

/// A page that shows everything: permits, waiters, a refusal and a listing.
async fn crowded() -> (
    Market,
    Vec<tokio::net::TcpStream>,
    browser::browser::Browser,
) {
    let (market, browser) = start(&[("LIMIT", "2"), ("WAIT_MS", "6000")]).await;
    browser.click("#sell-form button").await;
    browser.reads("#listings > li", "ann-1").await;
    // Two are admitted, and the third waits until it is refused.
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(market.send("GET", ENDLESS).await);
    }
    browser.click("#open").await;
    browser.reads("#streams > li", "refused").await;
    browser.reads("#refusals > li", "Retry-After").await;
    others.push(market.send("GET", ENDLESS).await);
    browser.reads("#queue > li", "1.").await;
    (market, others, browser)
}

#[tokio::test]
async fn every_part_has_a_role_and_every_control_has_a_name() {
    let (_market, _others, browser) = crowded().await;
    let nodes = browser.accessibility().await;
    let role = |node: &Value| {
        node["role"]["value"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let name = |node: &Value| {
        node["name"]["value"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let controls = [
        "button",
        "textbox",
        "combobox",
        "spinbutton",
        "link",
        "region",
        "search",
        "list",
        "log",
    ];
    for node in &nodes {
        let is_control = controls.contains(&&*role(node));
        assert!(
            !is_control || !name(node).is_empty(),
            "without a name: {node}"
        );
    }
    for landmark in ["main", "banner", "search", "contentinfo", "region", "log"] {
        assert!(
            nodes.iter().any(|node| role(node) == landmark),
            "no {landmark}"
        );
    }
    let has = |expected_role: &str, expected_name: &str| {
        nodes
            .iter()
            .any(|node| role(node) == expected_role && name(node) == expected_name)
    };
    assert!(has("textbox", "Account"));
    assert!(has("button", "Open a stream"));
    assert!(has("button", "End permit in slot 1"));
    assert!(has("button", "Try stream 1 again"));
    assert!(has("region", "Queue"));
    assert!(has("region", "Streams of this page"));
    let buttons: Vec<_> = nodes
        .iter()
        .filter(|node| role(node) == "button")
        .map(name)
        .collect();
    let distinct: std::collections::HashSet<_> = buttons.iter().collect();
    assert_eq!(
        buttons.len(),
        distinct.len(),
        "two have the same name: {buttons:?}"
    );
}

#[tokio::test]
async fn changes_are_announced_once_and_countdowns_are_not() {
    let (_market, browser) = start(&[("LIMIT", "1")]).await;
    let live = "document.getElementById('announcement').ariaLive === 'polite'";
    browser.shows("the region is live", live).await;
    browser.click("#open").await;
    shows_held(&browser, 1).await;
    browser.reads("#announcement", "1 of 1 permits held").await;
    browser.run(COUNT_CHANGES, &[]).await;
    browser.click("#open").await;
    browser
        .reads("#streams > li:nth-child(2)", "Retry-After")
        .await;
    // Long enough for several ticks of the clock.
    browser
        .shows("time has passed", "performance.now() - window.began > 2000")
        .await;
    let changes = browser.run("return window.changes", &[]).await;
    assert_eq!(changes, 1, "only the refusal, not its countdown");
}

/// Counts the announcements of a live region: additions, and text changes outside `aria-hidden`.
const COUNT_CHANGES: &str = "
    window.changes = 0;
    window.began = performance.now();
    const hidden = (node) => (node.nodeType === 1 ? node : node.parentElement).closest('[aria-hidden=true]');
    const count = (records) => { window.changes += records.filter((r) => r.addedNodes.length && !hidden(r.target)).length };
    for (const live of document.querySelectorAll('[role=log], [role=status]'))
        new MutationObserver(count).observe(live, { childList: true, subtree: true, characterData: true });
";

#[tokio::test]
async fn it_fits_a_phone_and_every_target_is_large_enough_for_a_finger() {
    let (_market, _others, browser) = crowded().await;
    for width in [320, 360, 768, 1280] {
        browser.resize(width, 800).await;
        // Content that does not fit widens the window of a phone, so the window's width cannot be used here.
        let needed = browser.run("return document.documentElement.scrollWidth", &[]);
        assert_eq!(needed.await, width);
    }
    browser.resize(360, 800).await;
    let small = browser.run(
        "return [...document.querySelectorAll('button, input, select')]
            .filter((e) => e.checkVisibility())
            .filter((e) => e.getBoundingClientRect().height < 36 || e.getBoundingClientRect().width < 36)
            .map((e) => e.outerHTML)",
        &[],
    );
    assert_eq!(small.await, serde_json::json!([]));
}

#[tokio::test]
async fn nothing_moves_for_a_visitor_who_prefers_reduced_motion() {
    let (_market, browser) = start(&[]).await;
    let moves = "return [...document.querySelectorAll('*')].flatMap((e) => ['', '::before']
        .map((part) => getComputedStyle(e, part).transitionDuration))
        .some((duration) => duration.split(', ').some((d) => parseFloat(d) > 0))";
    assert_eq!(browser.run(moves, &[]).await, true);
    browser.prefer("prefers-reduced-motion", "reduce").await;
    assert_eq!(browser.run(moves, &[]).await, false);
}
