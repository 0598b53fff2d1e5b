//! The page of the market as a visitor sees it, in a real browser.
//!
//! | promise | judged by |
//! |---|---|
//! | slots fill and empty, waiters queue in order, a refusal has its `Retry-After`, a killed process's slots empty, a store's death and return are shown | the page's text, beside clients on plain sockets |
//! | a name of any text is shown as text | it creates no element, the title stays, the console is empty |
//! | a long queue, many slots and many listings are drawn in part, and the rest is counted | clients on plain sockets, the prices shown |
//! | a trade is shown from its seller to its buyer, also if their names are written from right to left | the positions of the names |
//! | every control has a name, and no landmark is missing | the accessibility tree |
//! | a change is announced once, a countdown never, many refusals as a number | an observer of the live regions |
//! | text has enough contrast in both themes | WCAG 2.2's formula over computed colours |
//! | it fits widths from 320 to 1280 pixels | the document's width, each target's size |

mod contrast;
mod crowds;
mod event_source;
mod fleet;
mod keyboard;
mod names;
mod pictures;
mod plain;
mod reading;
mod slots;
mod streams;
mod trading;

use browser::{
    browser::Browser,
    market::{Market, status},
};
use tokio::net::TcpStream;

/// The path of a stream of ann that outlasts the test.
const ENDLESS: &str = "/market/export?rows=1000000&interval_ms=60000&account=ann";

/// A browser whose page watches ann at this market and receives events.
async fn watch_ann(market: &Market) -> Browser {
    let browser = Browser::start().await;
    browser.open(&market.page("ann")).await;
    browser.reads("#connection", "live").await;
    browser
}

/// Starts a market with these settings, and opens a page that watches ann.
async fn start(settings: &[(&str, &str)]) -> (Market, Browser) {
    let market = Market::start(settings).await;
    let browser = watch_ann(&market).await;
    (market, browser)
}

/// Opens a stream of ann, which must be admitted.
async fn open_stream(market: &Market) -> TcpStream {
    let mut stream = market.send("GET", ENDLESS).await;
    assert_eq!(status(&mut stream).await, 200);
    stream
}

/// Waits until the page shows `waiting` claims in the queue.
async fn shows_waiting(browser: &Browser, waiting: usize) {
    let queued = format!("document.querySelectorAll('#queue > li').length === {waiting}");
    browser.shows(&format!("{waiting} wait"), &queued).await;
}

/// Waits until the page shows `held` permits as held, in its count and in its slots.
async fn shows_held(browser: &Browser, held: usize) {
    browser.reads("#held-count", &held.to_string()).await;
    let slots = format!("document.querySelectorAll('.slot.held').length === {held}");
    browser
        .shows(&format!("{held} slots are held"), &slots)
        .await;
}
