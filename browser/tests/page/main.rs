//! The page of the market as a visitor sees it, in a real browser.

mod contrast;
mod crowds;
mod fleet;
mod keyboard;
mod names;
mod pictures;
mod plain;
mod reading;
mod slots;
mod streams;
mod trading;

use browser::{browser::Browser, market::Market};

/// A stream of ann's that does not end while a test runs.
const ENDLESS: &str = "/market/export?rows=1000000&interval_ms=60000&account=ann";

/// A browser whose page watches ann at this market, and is told what happens.
async fn watching(market: &Market) -> Browser {
    let browser = Browser::start().await;
    browser.open(&market.page("ann")).await;
    browser.reads("#connection", "live").await;
    browser
}

/// The page shows so many permits as held: in its count, and in its slots.
async fn shows_held(browser: &Browser, held: usize) {
    browser.reads("#held-count", &held.to_string()).await;
    let slots = format!("document.querySelectorAll('.slot.held').length === {held}");
    browser
        .shows(&format!("{held} slots are held"), &slots)
        .await;
}
