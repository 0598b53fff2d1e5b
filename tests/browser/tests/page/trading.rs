//! Items are listed and bought.
//!
//! Promises: none.

use crate::watching;
use browser::{browser::Browser, market::Market};
use testing::redis::RedisServer;

async fn trades(anns: &Market, bobs: &Market) {
    let ann = watching(anns).await;
    let bob = Browser::start().await;
    bob.open(&bobs.page("bob")).await;
    bob.reads("#connection", "live").await;

    ann.click("#sell-form button").await;
    ann.reads("#trade-outcome", "ann-1 is for sale").await;
    bob.reads("#listings > li", "ann-1").await;
    bob.reads("#listings > li", "100 coins").await;
    let own = "!document.querySelector('#listings button').checkVisibility()";
    ann.shows("nobody buys his own", own).await;

    bob.click("#listings button").await;
    bob.reads("#trade-outcome", "ann-1 is bought").await;
    ann.reads("#trades > li", "ann → bob").await;
    ann.reads("#funds", "1,100").await;
    bob.reads("#funds", "900").await;
    bob.shows(
        "the item is bob's",
        "[...document.getElementById('item').options].some((o) => o.value === 'ann-1')",
    )
    .await;
    ann.shows(
        "it is sold",
        "document.getElementById('listings').children.length === 0",
    )
    .await;
}

#[tokio::test]
async fn two_visitors_trade_and_both_see_it() {
    let market = Market::start(&[]).await;
    trades(&market, &market).await;
}

#[tokio::test]
async fn visitors_of_two_processes_trade_and_both_see_it() {
    let server = RedisServer::start();
    let settings = [("REDIS_URL", &*server.url())];
    trades(
        &Market::start(&settings).await,
        &Market::start(&settings).await,
    )
    .await;
}

#[tokio::test]
async fn a_purchase_without_a_permit_is_refused_and_says_so() {
    let market = Market::start(&[("LIMIT", "1")]).await;
    let ann = watching(&market).await;
    ann.click("#open").await;
    ann.reads("#streams > li", ": open").await;
    ann.click("#sell-form button").await;
    ann.reads("#trade-outcome", "Refused: 429, Retry-After: ")
        .await;
    ann.reads("#refusals > li", "POST /market/items").await;
}
