//! The event feed that a page opens to watch an account.
//!
//! Promises: none.

use crate::{
    client::{Answer, Client},
    process::Market,
};
use serde_json::Value;
use testing::wait::eventually;

/// A stream of the events about one account.
pub(crate) struct Feed(Answer);

impl Feed {
    pub(crate) async fn open(client: &Client, account: &str) -> Self {
        let answer = client.get(&format!("/accounts/{account}/events")).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.header("content-type"), "text/event-stream");
        Self(answer)
    }

    /// The data of the next event that has this name and satisfies `fits`.
    pub(crate) async fn wait_for(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (event, data) = self.0.event().await;
            if event == name && fits(&data) {
                return data;
            }
        }
    }
}

/// Opens `count` feeds of ann, and waits for their first events. Dropping a feed closes its connection.
pub(crate) async fn feeds(client: &Client, count: usize) -> Vec<Feed> {
    let mut feeds = Vec::new();
    for _ in 0..count {
        let mut feed = Feed::open(client, "ann").await;
        feed.wait_for("permits", |_| true).await;
        feeds.push(feed);
    }
    feeds
}

/// 256 is `MOST_PAGES` of the market.
#[tokio::test]
async fn feeds_beyond_256_are_refused_and_take_no_permit() {
    let market = Market::start(&[]).await;
    let anonymous = market.anonymous_client();
    let mut feeds = feeds(&anonymous, 256).await;
    let refused = anonymous.get("/accounts/ann/events").await;
    assert_eq!(refused.status(), 429);
    assert_ne!(refused.header("retry-after"), "");
    assert_eq!(market.client("ann").get("/market").await.status(), 200);
    feeds.pop();
    let is_admitted = async || anonymous.get("/accounts/ann/events").await.status() == 200;
    eventually("a feed is admitted", crate::BOUND, is_admitted).await;
}
