//! An account's name can be any text, and the page shows it as text.
//!
//! Promises: none.

use crate::shows_held;
use browser::{browser::Browser, market::Market};
use serde_json::json;

/// Watches the account of this name, opens and stops a stream of it, and asserts that the name creates no element.
async fn assert_shown_as_text(browser: &Browser, name: &str) {
    watch(browser, name).await;
    browser.click("#open").await;
    shows_held(browser, 1).await;
    browser.click("#streams .stop").await;
    shows_held(browser, 0).await;
    let has_items = "document.getElementById('item').options.length === 10";
    browser.shows("the account has its items", has_items).await;
    let item = browser
        .run("return document.getElementById('item').value", &[])
        .await;
    assert_eq!(item, format!("{name}-1"));
    let title = browser.run("return document.title", &[]).await;
    assert_eq!(title, format!("0/5 \u{b7} {name} \u{b7} Market"));
    let added = browser
        .run("return document.querySelectorAll('img').length", &[])
        .await;
    assert_eq!(added, 0);
}

#[tokio::test]
async fn names_with_markup_are_shown_as_text_and_their_streams_hold_permits() {
    let market = Market::start(&[]).await;
    let browser = Browser::start().await;
    browser.open(&market.page("ann")).await;
    for name in [
        "<img src=x onerror=\"document.title='owned'\">",
        "</script><script>document.title='owned'</script>",
        "'\"`${alert(1)}{{7*7}}",
        "__proto__",
    ] {
        assert_shown_as_text(&browser, name).await;
    }
    assert_eq!(browser.take_log().await, [""; 0]);
}

#[tokio::test]
async fn names_that_a_url_must_escape_are_shown_as_text_and_their_streams_hold_permits() {
    let market = Market::start(&[]).await;
    let browser = Browser::start().await;
    browser.open(&market.page("ann")).await;
    let long = "x".repeat(500);
    for name in [
        "%2f",
        "a/b?c&d=e#f",
        "%",
        "a+b c",
        "\u{1f980}\u{200d}\u{1f9ea} \u{202e}olleh",
        &long,
    ] {
        assert_shown_as_text(&browser, name).await;
    }
    let width = browser.run(
        "return document.documentElement.scrollWidth <= innerWidth",
        &[],
    );
    assert_eq!(width.await, true, "the long name is wrapped");
    assert_eq!(browser.take_log().await, [""; 0]);
}

/// Watches an account through the form, and then through the URL that the form has made.
async fn watch(browser: &Browser, name: &str) {
    let fill = "document.getElementById('account').value = arguments[0]";
    browser.run(fill, &[json!(name)]).await;
    browser.click("#account-form button").await;
    let shown = "return document.getElementById('watched').textContent";
    assert_eq!(browser.run(shown, &[]).await, name);
    browser.reload().await;
    browser.reads("#connection", "live").await;
    assert_eq!(browser.run(shown, &[]).await, name);
}

#[tokio::test]
async fn a_name_that_no_url_can_hold_is_refused_by_the_form() {
    let market = Market::start(&[]).await;
    let browser = Browser::start().await;
    browser.open(&market.page("ann")).await;
    for name in ["", ".", ".."] {
        let fill = "document.getElementById('account').value = arguments[0]";
        browser.run(fill, &[json!(name)]).await;
        browser.click("#account-form button").await;
        let invalid = "document.getElementById('account').matches(':invalid')";
        browser.shows("the form says so", invalid).await;
        assert_eq!(browser.text("#watched").await, "ann");
    }
}
