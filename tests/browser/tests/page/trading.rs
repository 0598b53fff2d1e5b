//! Items are listed and bought.
//!
//! Promises: none.

use crate::watch_ann;
use browser::{browser::Browser, market::Market};
use testing::redis::RedisServer;

async fn assert_trade(anns_market: &Market, bobs_market: &Market) {
    let ann = watch_ann(anns_market).await;
    let bob = Browser::start().await;
    bob.open(&bobs_market.page("bob")).await;
    bob.reads("#connection", "live").await;

    ann.click("#sell-form button").await;
    ann.reads("#trade-outcome", "ann-1 is for sale").await;
    bob.reads("#listings > li", "ann-1").await;
    bob.reads("#listings > li", "100 coins").await;
    let own = "!document.querySelector('#listings button').checkVisibility()";
    ann.shows("ann cannot buy her item", own).await;

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
    assert_trade(&market, &market).await;
}

#[tokio::test]
async fn visitors_of_two_processes_trade_and_both_see_it() {
    let server = RedisServer::start();
    let settings = [("REDIS_URL", &*server.url())];
    assert_trade(
        &Market::start(&settings).await,
        &Market::start(&settings).await,
    )
    .await;
}

#[tokio::test]
async fn an_offer_without_a_free_permit_is_refused_and_the_page_shows_it() {
    let market = Market::start(&[("LIMIT", "1")]).await;
    let ann = watch_ann(&market).await;
    ann.click("#open").await;
    ann.reads("#streams > li", ": open").await;
    ann.click("#sell-form button").await;
    ann.reads("#trade-outcome", "Refused: 429, Retry-After: ")
        .await;
    ann.reads("#refusals > li", "POST /market/items").await;
}
