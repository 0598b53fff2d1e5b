//! A browser with one tab.

use crate::{
    devtools::{Console, Devtools},
    driver::Driver,
};
use fantoccini::{Client, ClientBuilder, Locator, key::Key};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;
use testing::wait::{eventually, within};

/// Longer than any wait except the start should take, so that a test fails instead of hanging.
pub const BOUND: Duration = Duration::from_secs(30);

/// A headless browser. It ends when it is dropped.
pub struct Browser {
    client: Client,
    // Fields are dropped in this order: the driver must end before its folder is removed.
    _driver: Driver,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with a fresh profile.
    pub async fn start() -> Self {
        let profile = TempDir::new().expect("a temporary folder can be made");
        let driver = Driver::start(profile.path());
        let options = json!({
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": [
                "--headless=new",
                // The sandbox does not work for root.
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-gpu",
                // Makes pictures identical on every machine.
                "--hide-scrollbars",
                "--lang=en",
                format!("--user-data-dir={}", profile.path().display()),
            ]},
        });
        let Value::Object(options) = options else {
            unreachable!("it is an object");
        };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let url = driver.url();
        let client = builder.capabilities(options).connect(&url);
        let client = within("chromium starts", 2 * BOUND, client).await;
        Self {
            client: client.expect("chromium starts"),
            _driver: driver,
            _profile: profile,
        }
    }

    /// Opens a URL.
    pub async fn open(&self, url: &str) {
        let opened = within(url, BOUND, self.client.goto(url)).await;
        opened.expect("the page opens");
    }

    /// Goes back to the previous page and waits until it is shown.
    pub async fn go_back(&self) {
        let shown = within("the page before", BOUND, self.client.back()).await;
        shown.expect("there is a page before");
    }

    /// Reloads the page.
    pub async fn reload(&self) {
        let loaded = within("the page loads again", BOUND, self.client.refresh()).await;
        loaded.expect("the page opens");
    }

    /// Runs a script in the page, such as `return document.title`, and returns its result.
    pub async fn run(&self, script: &str, arguments: &[Value]) -> Value {
        let run = self.client.execute(script, arguments.to_vec());
        let answer = within(script, BOUND, run).await;
        answer.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The text of the first element that matches this CSS selector, or an empty string.
    pub async fn text(&self, selector: &str) -> String {
        let script = "return document.querySelector(arguments[0])?.innerText ?? ''";
        let text = self.run(script, &[selector.into()]).await;
        text.as_str().expect("text").to_owned()
    }

    /// The texts of all elements that match this CSS selector.
    pub async fn texts(&self, selector: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)";
        let texts = self.run(script, &[selector.into()]).await;
        serde_json::from_value(texts).expect("texts")
    }

    /// Clicks the first element that matches this CSS selector, as a visitor would.
    pub async fn click(&self, selector: &str) {
        let click = async {
            let element = self.client.find(Locator::Css(selector)).await;
            element?.click().await
        };
        let clicked = within(selector, BOUND, click).await;
        clicked.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Sends keys to the focused element.
    pub async fn press(&self, keys: &str) {
        let press = async { self.client.active_element().await?.send_keys(keys).await };
        let pressed = within("keys are pressed", BOUND, press).await;
        pressed.expect("keys are pressed");
    }

    /// Presses the Tab key until an element that matches this CSS selector has the focus.
    pub async fn tab_to(&self, selector: &str) {
        let tab = char::from(Key::Tab).to_string();
        // The pages of the tests have fewer controls.
        for _ in 0..60 {
            let script = "return document.activeElement?.matches(arguments[0]) ?? false";
            if self.run(script, &[selector.into()]).await == true {
                return;
            }
            self.press(&tab).await;
        }
        panic!("the Tab key does not lead to {selector}");
    }

    /// Waits until this expression is true in the page.
    pub async fn shows(&self, what: &str, expression: &str) {
        let script = format!("return Boolean({expression})");
        eventually(what, BOUND, async || self.run(&script, &[]).await == true).await;
    }

    /// Waits until the text of the first element that matches this CSS selector contains these words.
    pub async fn reads(&self, selector: &str, words: &str) {
        let what = format!("{selector} reads {words:?}");
        eventually(&what, BOUND, async || {
            self.text(selector).await.contains(words)
        })
        .await;
    }

    /// All messages that the browser has logged since the last call.
    pub async fn take_log(&self) -> Vec<String> {
        let entries = within("a log", BOUND, self.client.issue_cmd(Console)).await;
        let entries = entries.expect("it has a log");
        let entries = entries.as_array().expect("a list");
        let messages = entries.iter().filter_map(|entry| entry["message"].as_str());
        messages.map(ToOwned::to_owned).collect()
    }

    /// Sets the size of the window, in CSS pixels.
    pub async fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
    }

    /// Emulates a preference of the visitor, such as `("prefers-color-scheme", "dark")`.
    pub async fn prefer(&self, feature: &str, value: &str) {
        let features = json!({"features": [{"name": feature, "value": value}]});
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Disables the scripts of all pages that are opened from now on.
    pub async fn without_javascript(&self) {
        self.devtools(
            "Emulation.setScriptExecutionDisabled",
            json!({"value": true}),
        )
        .await;
    }

    /// A picture of the whole page as base64. The format is `png` or `webp`.
    pub async fn picture(&self, format: &str) -> String {
        let whole = json!({"format": format, "quality": 90, "captureBeyondViewport": true});
        let picture = self.devtools("Page.captureScreenshot", whole).await;
        picture["data"].as_str().expect("a picture").to_owned()
    }

    /// The nodes of the accessibility tree that a screen reader sees, without ignored nodes.
    pub async fn accessibility(&self) -> Vec<Value> {
        let tree = self
            .devtools("Accessibility.getFullAXTree", json!({}))
            .await;
        let nodes = tree["nodes"].as_array().expect("a tree").iter();
        nodes
            .filter(|node| node["ignored"] != true)
            .cloned()
            .collect()
    }

    async fn devtools(&self, command: &'static str, parameters: Value) -> Value {
        let issued = self.client.issue_cmd(Devtools {
            command,
            parameters,
        });
        let answer = within(command, BOUND, issued).await;
        answer.unwrap_or_else(|error| panic!("{command}: {error}"))
    }
}
