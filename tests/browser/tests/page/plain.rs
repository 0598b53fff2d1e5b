//! Without JavaScript the page explains what is missing, and everything that it still offers works.
//!
//! Promises: none.

use crate::{shows_held, watch_ann};
use browser::{browser::Browser, market::Market};

#[tokio::test]
async fn without_javascript_the_page_offers_the_routes_and_its_form_opens_a_stream() {
    let market = Market::start(&[]).await;
    let watcher = watch_ann(&market).await;
    let plain = Browser::start().await;
    plain.without_javascript().await;
    plain.open(&market.page("ann")).await;
    let text = plain.text("main").await;
    assert!(text.contains("Without JavaScript"), "{text}");
    let visible = "return [...document.querySelectorAll('.live')].some((e) => e.checkVisibility())";
    assert_eq!(plain.run(visible, &[]).await, false);

    plain
        .click("noscript button[formaction='/market/events']")
        .await;
    shows_held(&watcher, 1).await;
    plain.click("noscript a[href='/accounts/ann']").await;
    plain.reads("body", "\"funds\":1000").await;
}
