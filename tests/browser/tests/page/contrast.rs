//! Text has the contrast that WCAG's level AA requires.
//!
//! Promises: none.

use crate::{ENDLESS, shows_held, start};
use serde_json::json;

/// Returns each text whose contrast is below 4.5 by the formula of WCAG 2.2, with that contrast.
const FAINT: &str = "
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const rgb = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
        .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const background = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const fill = at.matches('.slot.held') ? getComputedStyle(at, '::before') : getComputedStyle(at);
            const color = rgb(fill.backgroundColor);
            if (color[3] === 255) return color;
        }
        return [255, 255, 255];
    };
    const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    return [...document.querySelectorAll('body *')].filter((e) => hasText(e) && e.checkVisibility()).map((e) => {
        const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(background(e))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return [contrast, e.innerText, e.className, e.id];
    }).filter(([contrast]) => contrast < 4.5);
";

#[tokio::test]
async fn every_text_is_readable_in_both_themes() {
    let (market, browser) = start(&[("LIMIT", "2"), ("WAIT_MS", "1000")]).await;
    let holder = market.send("GET", ENDLESS).await;
    shows_held(&browser, 1).await;
    browser.click("#open-many").await;
    browser
        .reads("#streams > li[data-state=refused]", "Retry-After")
        .await;
    let _refused = market.send("GET", "/market?account=ann").await;
    browser.reads("#refusals > li", "Retry-After").await;
    let _waiter = market.send("GET", ENDLESS).await;
    browser.prefer("prefers-reduced-motion", "reduce").await;
    for theme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", theme).await;
        assert_eq!(browser.run(FAINT, &[]).await, json!([]), "{theme}");
    }
    drop(holder);
}

#[tokio::test]
async fn the_theme_follows_the_system_until_the_visitor_chooses_one() {
    let (market, browser) = start(&[]).await;
    let background = "return getComputedStyle(document.documentElement).backgroundColor";
    browser.prefer("prefers-color-scheme", "light").await;
    let light = browser.run(background, &[]).await;
    browser.prefer("prefers-color-scheme", "dark").await;
    let dark = browser.run(background, &[]).await;
    assert_ne!(light, dark);
    browser.click("#theme").await;
    browser.reads("#theme", "light").await;
    assert_eq!(browser.run(background, &[]).await, light);
    browser.open(&market.page("ann")).await;
    assert_eq!(
        browser.run(background, &[]).await,
        light,
        "it is remembered"
    );
}
