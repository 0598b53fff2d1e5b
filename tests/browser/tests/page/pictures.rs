//! Takes pictures of the page, in both themes and at two widths, and stores them in `target/tmp/pictures`.
//!
//! Promises: none.

use base64::{Engine, prelude::BASE64_STANDARD};
use browser::{
    browser::Browser,
    market::{Market, status},
};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};
use testing::redis::RedisServer;
use tokio::net::TcpStream;

/// The README's picture must stay small.
const MAX_BYTES: usize = 150_000;

/// The longest time for which a busy machine may make the store too slow.
const BOUND: Duration = Duration::from_secs(20);

#[tokio::test]
async fn pictures_of_a_full_account_are_made_and_small() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    fs::create_dir_all(&folder).expect("the folder can be made");
    let server = RedisServer::start();
    let url = server.url();
    let settings = [("REDIS_URL", &*url), ("WAIT_MS", "6000")];
    let here = Market::start(&settings).await;
    let there = Market::start(&settings).await;
    list_items(&there).await;
    let browser = Browser::start().await;
    browser.resize(1280, 800).await;
    browser.open(&here.page("ann")).await;
    browser.reads("#connection", "live").await;
    let _others = crowd(&browser, &there).await;
    for theme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", theme).await;
        for width in [1280, 360] {
            browser.resize(width, 800).await;
            let picture = picture(&browser, "png").await;
            save(&folder.join(format!("{theme}-{width}.png")), &picture);
        }
    }
    browser.prefer("prefers-color-scheme", "light").await;
    browser.resize(1280, 800).await;
    let for_readme = picture(&browser, "webp").await;
    assert!(for_readme.len() < MAX_BYTES, "{} bytes", for_readme.len());
    save(&folder.join("market.webp"), &for_readme);
}

async fn picture(browser: &Browser, format: &str) -> Vec<u8> {
    let picture = BASE64_STANDARD.decode(browser.picture(format).await);
    picture.expect("base64")
}

fn save(file: &Path, picture: &[u8]) {
    fs::write(file, picture).expect("the file is written");
}

/// Lists items of other accounts for sale.
async fn list_items(market: &Market) {
    for (seller, item, price) in [
        ("bob", "bob-3", 40),
        ("cleo", "cleo-1", 75),
        ("dana", "dana-7", 120),
        ("emil", "emil-2", 310),
    ] {
        let offer = format!("{{\"item\":\"{item}\",\"price\":{price}}}");
        let target = format!("/market/items?account={seller}");
        // On a busy machine the store may be too slow for the first attempt.
        let start = Instant::now();
        loop {
            let mut sent = market.post(&target, &offer).await;
            match status(&mut sent).await {
                503 if start.elapsed() < BOUND => {}
                other => break assert_eq!(other, 201),
            }
        }
    }
}

/// Fills the page: five permits in two processes, a refused stream, and waiters. Returns the streams at `there`.
async fn crowd(browser: &Browser, there: &Market) -> Vec<TcpStream> {
    let mut others = Vec::new();
    browser.reads("#listings > li", "bob-3").await;
    browser.click("#listings button").await;
    browser.reads("#trades > li", "bob").await;
    for route in ["export", "events"] {
        let target = format!("/market/{route}?rows=100000&interval_ms=60000&account=ann");
        let mut stream = there.send("GET", &target).await;
        assert_eq!(status(&mut stream).await, 200);
        others.push(stream);
    }
    for held in 3..=5 {
        browser.click("#open").await;
        browser.reads("#held-count", &held.to_string()).await;
    }
    browser.click("#open").await;
    // This stream is refused after `WAIT_MS`. The next two claims wait while the pictures are taken.
    browser.reads("#streams > li:nth-child(4)", "refused").await;
    others.push(there.send("GET", "/market/events?account=ann").await);
    browser.reads("#queue > li", "1.").await;
    browser.click("#open").await;
    browser.reads("#queue > li:nth-child(2)", "2.").await;
    others
}
