//! Every action is possible with the keyboard alone.
//!
//! Promises: none.

use crate::{shows_held, start};

const ENTER: &str = "\u{e007}";

#[tokio::test]
async fn a_stream_is_opened_and_closed_by_keys_alone() {
    let (_market, browser) = start(&[]).await;
    browser.tab_to("#open").await;
    browser.press(ENTER).await;
    shows_held(&browser, 1).await;

    browser.tab_to("#streams .stop").await;
    let outline = "getComputedStyle(document.activeElement).outlineStyle === 'solid'";
    browser.shows("the focus is seen", outline).await;
    browser.press(ENTER).await;
    shows_held(&browser, 0).await;
    // The button has disappeared. The focus moves to an element nearby, not to the top of the page.
    browser
        .shows(
            "the focus is kept",
            "document.activeElement.id === 'streams-title'",
        )
        .await;
}

#[tokio::test]
async fn a_permit_is_ended_and_an_account_chosen_by_keys_alone() {
    let (_market, browser) = start(&[]).await;
    browser.tab_to("#open").await;
    browser.press(ENTER).await;
    shows_held(&browser, 1).await;

    browser.run("document.activeElement.blur()", &[]).await;
    browser.tab_to(".slot.held button").await;
    browser.press(ENTER).await;
    shows_held(&browser, 0).await;
    browser
        .shows(
            "the focus is kept",
            "document.activeElement.id === 'slots-title'",
        )
        .await;

    browser.run("document.activeElement.blur()", &[]).await;
    browser.tab_to("#account").await;
    browser.press(&format!("bob{ENTER}")).await;
    browser.reads("#watched", "bob").await;
}
