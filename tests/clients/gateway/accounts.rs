//! The accounts at upstreams.
//!
//! Promises: P17, P26.

use super::client::{AMPLE_BUDGETS, Gateway, REFUSING, SILENT_UPSTREAM};
use std::time::{Duration, Instant};

/// More than half of an account's quota, which is 1,000,000 tokens per minute.
const MOST_OF_A_QUOTA: u32 = 600_000;

#[tokio::test]
async fn a_pause_lasts_at_most_the_cooldown_whatever_the_upstream_asks_for() {
    let extra = [("UPSTREAMS", "fake"), ("COOLDOWN_MS", "100000")];
    let gateway = Gateway::start(&[&REFUSING[..], &extra].concat()).await;
    gateway.overload_for_seconds("fake", 600).await;
    let retry_after = gateway
        .complete("ann", 1)
        .await
        .assert_refused_by("upstream")
        .await;
    // The cooldown of 100 s, less the time that has passed on a busy machine.
    assert!((Duration::from_secs(50)..=Duration::from_secs(100)).contains(&retry_after));
}

#[tokio::test]
async fn a_request_waits_until_a_pause_of_all_accounts_ends() {
    let gateway = Gateway::start(&[("WORD_MS", "0")]).await;
    let begun = Instant::now();
    gateway.overload_for_seconds("fake-1", 2).await;
    gateway.overload_for_seconds("fake-2", 600).await;
    assert_eq!(gateway.stream("ann", 1).await.account(), "fake-1");
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

#[tokio::test]
async fn a_waiting_request_goes_to_the_first_account_that_gets_room() {
    let extra = [
        SILENT_UPSTREAM,
        ("UPSTREAM_LIMIT", "1"),
        ("WAIT_MS", "600000"),
    ];
    let gateway = Gateway::start(&extra).await;
    // These occupy both accounts.
    let _first = gateway.stream("ann", 1).await;
    let second = gateway.stream("ann", 1).await;
    let account = second.account();
    let waiting = tokio::spawn(gateway.complete("bob", 1));
    gateway.wait_for_in_flight("bob", 1).await;
    drop(second);
    assert_eq!(waiting.await.expect("no panic").account(), account);
}

#[tokio::test]
async fn a_request_goes_to_another_account_if_the_tokens_of_the_first_are_reserved() {
    let gateway =
        Gateway::start(&[&REFUSING[..], &AMPLE_BUDGETS[..], &[SILENT_UPSTREAM]].concat()).await;
    let first = gateway.stream("ann", MOST_OF_A_QUOTA).await;
    let second = gateway.stream("ann", MOST_OF_A_QUOTA).await;
    assert_ne!(first.account(), second.account());
    gateway
        .complete("ann", MOST_OF_A_QUOTA)
        .await
        .assert_refused_by("upstream-tokens")
        .await;
}

/// The second gateway sends its requests to the built-in upstream of the first, and shares no limits with it.
#[tokio::test]
async fn gateways_that_share_nothing_exceed_the_quota_of_an_account_and_pause_it() {
    let settings = [&REFUSING[..], &AMPLE_BUDGETS[..], &[SILENT_UPSTREAM]].concat();
    let one = Gateway::start(&[&settings[..], &[("UPSTREAMS", "fake")]].concat()).await;
    let account = format!("far={}/fake/fake/v1/completions", one.url);
    let other = Gateway::start(&[&settings[..], &[("UPSTREAMS", &*account)]].concat()).await;
    let _first = one.stream("ann", MOST_OF_A_QUOTA).await;
    other
        .complete("ann", MOST_OF_A_QUOTA)
        .await
        .assert_refused_by("upstream")
        .await;
    assert_eq!(other.used("ann", "tokens").await, 0);
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_a_502_that_costs_nothing() {
    let gateway = Gateway::start(&[("UPSTREAMS", "gone=http://127.0.0.1:1")]).await;
    let answer = gateway.complete("ann", 100).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.error().await["type"], "server_error");
    gateway.wait_for_in_flight("ann", 0).await;
    assert_eq!(gateway.used("ann", "tokens").await, 0);
}
