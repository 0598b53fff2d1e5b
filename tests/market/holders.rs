//! The route that lists the holders of an account's permits, and the route that ends one.
//!
//! Promises: P24.

use crate::{
    client::{Client, ENDLESS, streams, wait_until_admitted},
    process::Market,
    soon,
};
use http::Method;
use serde_json::{Value, json};
use testing::wait::eventually;

on_every_store! {
    an_account_s_streams_are_shown_with_their_process_and_route,
    a_permit_that_is_deleted_cuts_its_stream_and_frees_its_slot,
}

/// The market's report about an account's permits.
pub(crate) async fn permits(client: &Client, account: &str) -> Value {
    let answer = client.get(&format!("/accounts/{account}/permits")).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json().await
}

pub(crate) async fn delete(client: &Client, account: &str, permit: &str) -> u16 {
    let path = format!("/accounts/{account}/permits/{permit}");
    let answer = client.send(client.request(Method::DELETE, &path), "").await;
    answer.status()
}

pub(crate) fn ids(permits: &Value) -> Vec<String> {
    let held = permits["held"].as_array().expect("a list").iter();
    let id = |permit: &Value| permit["id"].as_str().expect("an id").to_owned();
    held.map(id).collect()
}

/// Waits until ann holds exactly these permits: the release of a finished request may still be in flight to Redis.
async fn wait_until_only_these_are_held(client: &Client, expected: &[String]) {
    eventually("ann holds only these", crate::BOUND, async || {
        ids(&permits(client, "ann").await) == expected
    })
    .await;
}

async fn an_account_s_streams_are_shown_with_their_process_and_route(market: &Market) {
    let (ann, anonymous) = (market.client("ann"), market.anonymous_client());
    let free = permits(&anonymous, "ann").await;
    assert_eq!((&free["limit"], &free["units"]), (&json!(5), &json!(0)));
    assert_eq!((&free["held"], &free["waiting"]), (&json!([]), &json!([])));

    let _streams = streams(&ann, 2).await;
    let shown = permits(&anonymous, "ann").await;
    assert_eq!((&shown["limit"], &shown["units"]), (&json!(5), &json!(2)));
    let held = shown["held"].as_array().expect("a list");
    assert_eq!(held.len(), 2);
    for permit in held {
        assert_eq!(permit["process"]["pid"], json!(market.pid()));
        assert_eq!(permit["process"]["name"], json!("market"));
        assert_eq!(permit["label"], json!("GET /market/export"));
        assert_eq!(permit["weight"], json!(1));
        let (since, now) = (permit["since"].as_u64(), shown["now"].as_u64());
        assert!(since.is_some() && since <= now, "{shown}");
    }
    assert_eq!(permits(&anonymous, "bob").await["held"], json!([]));
}

async fn a_permit_that_is_deleted_cuts_its_stream_and_frees_its_slot(market: &Market) {
    let (ann, anonymous) = (market.client("ann"), market.anonymous_client());
    let streams = streams(&ann, 5).await;
    assert_eq!(ann.get(ENDLESS).await.status(), 429);
    let before = ids(&permits(&anonymous, "ann").await);
    assert_eq!(before.len(), 5);
    // The oldest permit is listed first.
    for (index, stream) in streams.into_iter().enumerate() {
        assert_eq!(delete(&anonymous, "ann", &before[index]).await, 204);
        assert_eq!(
            soon("the end of the stream", stream.try_text()).await,
            None,
            "it is cut"
        );
        wait_until_admitted(&ann).await;
        wait_until_only_these_are_held(&anonymous, &before[index + 1..]).await;
    }
}

#[tokio::test]
async fn a_deleted_permit_leaves_room_for_another_account() {
    let settings = [("LIMIT", "1"), ("FLEET_LIMIT", "1")];
    let market = Market::start(&settings).await;
    let (ann, bob, anonymous) = (
        market.client("ann"),
        market.client("bob"),
        market.anonymous_client(),
    );
    let _stream = streams(&ann, 1).await;
    assert_eq!(bob.get("/market").await.status(), 429);
    let held = ids(&permits(&anonymous, "ann").await);
    assert_eq!(delete(&anonymous, "ann", &held[0]).await, 204);
    wait_until_admitted(&bob).await;
}

#[tokio::test]
async fn a_request_that_waits_is_shown_and_can_be_deleted() {
    let settings = [("LIMIT", "1"), ("WAIT_MS", "60000")];
    let market = Market::start(&settings).await;
    let (ann, anonymous) = (market.client("ann"), market.anonymous_client());
    let _stream = streams(&ann, 1).await;
    let waiting = tokio::spawn(async move { ann.get("/market").await.status() });
    let mut waiters = Value::Null;
    eventually("the request waits", crate::BOUND, async || {
        waiters = permits(&anonymous, "ann").await["waiting"].take();
        !waiters[0].is_null()
    })
    .await;
    assert_eq!(waiters[0]["label"], json!("GET /market"));
    let id = waiters[0]["id"].as_str().expect("an id");
    assert_eq!(delete(&anonymous, "ann", id).await, 204);
    let status = soon("an answer", waiting).await.expect("no panic");
    assert_eq!(status, 429);
    assert_eq!(permits(&anonymous, "ann").await["waiting"], json!([]));
}
