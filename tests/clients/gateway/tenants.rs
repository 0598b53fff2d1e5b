//! The limits of API keys and models.
//!
//! Promises: P9, P26.

use super::{
    client::{AMPLE_BUDGETS, BOUND, Gateway, REFUSING, SILENT_UPSTREAM},
    upstream::{End, Upstream},
};
use serde_json::json;
use std::time::Instant;
use testing::wait::eventually;

#[tokio::test]
async fn a_client_that_hangs_up_is_charged_only_the_words_that_it_was_sent() {
    let upstream = Upstream::start(400, End::Never).await;
    let extra = [("UPSTREAMS", &*upstream.account), ("KEY_TPM", "1000")];
    let gateway = Gateway::start(&[&REFUSING[..], &extra].concat()).await;
    assert_charged_only_words_sent(&gateway, &gateway).await;
}

/// A client of gateway `one` hangs up after 400 words. Asserts that gateway `other` then counts at most 400 used
/// tokens. The key must have 1,000 tokens per minute.
pub(crate) async fn assert_charged_only_words_sent(one: &Gateway, other: &Gateway) {
    let begun = Instant::now();
    let mut stream = one.stream("ann", 1_000).await;
    stream.read_words(400).await;
    other
        .complete("ann", 1_000)
        .await
        .assert_refused_by("tokens")
        .await;
    drop(stream);
    other.wait_for_in_flight("ann", 0).await;
    let used = other.used("ann", "tokens").await;
    // Used tokens come back with time, 1,000 per minute.
    let returned = begun.elapsed().as_secs_f64() * 1_000.0 / 60.0;
    assert!(
        used <= 400 && used as f64 >= 400.0 - returned.ceil(),
        "{used}"
    );
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_waits_for_an_account_is_charged_nothing() {
    let extra = [("WAIT_MS", "600000"), ("UPSTREAMS", "fake")];
    let gateway = Gateway::start(&extra).await;
    gateway.overload_for_seconds("fake", 200).await;
    let waiting = tokio::spawn(gateway.complete("ann", 500));
    let has_reserved = async || gateway.used("ann", "tokens").await == 500;
    eventually("the request has its tokens", BOUND, has_reserved).await;
    waiting.abort();
    gateway.wait_for_in_flight("ann", 0).await;
    assert_eq!(gateway.used("ann", "tokens").await, 0);
}

#[tokio::test]
async fn the_upstream_s_own_count_takes_precedence_over_the_words() {
    let upstream = Upstream::start(10, End::Usage(700)).await;
    let settings = [
        &REFUSING[..],
        &[("UPSTREAMS", &*upstream.account), ("KEY_TPM", "1000")],
    ];
    let gateway = Gateway::start(&settings.concat()).await;
    let begun = Instant::now();
    let text = gateway.stream("ann", 1_000).await.text().await;
    assert_eq!(text.matches(r#""text""#).count(), 10);
    assert!(
        !text.contains("usage") && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
    gateway.wait_for_in_flight("ann", 0).await;
    let used = gateway.used("ann", "tokens").await;
    // Used tokens come back with time, 1,000 per minute.
    let returned = begun.elapsed().as_secs_f64() * 1_000.0 / 60.0;
    assert!(
        used <= 700 && used as f64 >= 700.0 - returned.ceil(),
        "{used}"
    );
}

#[tokio::test]
async fn a_model_without_tokens_refuses_each_key_and_no_other_model() {
    let extra = [SILENT_UPSTREAM, ("MODEL_TPM", "1000")];
    let gateway = Gateway::start(&[&REFUSING[..], &extra].concat()).await;
    let _stream = gateway.stream("ann", 600).await;
    gateway
        .complete("bob", 600)
        .await
        .assert_refused_by("model-tokens")
        .await;
    let body = json!({"model": "large", "prompt": "", "max_tokens": 600}).to_string();
    let other = gateway.post("/v1/completions", Some("bob"), body).await;
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn without_earlier_answers_a_request_reserves_its_max_tokens_up_to_the_whole_budget() {
    for (tokens, left) in [(700, 300), (5_000, 0)] {
        let gateway = Gateway::start(&[SILENT_UPSTREAM, ("KEY_TPM", "1000")]).await;
        let answer = gateway.stream("ann", tokens).await;
        let left = format!(r#""tokens";r={left},"#);
        assert!(answer.header("ratelimit").contains(&left), "{answer:?}");
    }
}

#[tokio::test]
async fn after_ten_answers_a_request_reserves_half_more_than_their_mean() {
    let gateway = Gateway::start(&[&AMPLE_BUDGETS[..], &[("WORD_MS", "0")]].concat()).await;
    let request = async || {
        let body = json!({"model": "small", "prompt": "100 words", "max_tokens": 50000});
        let answer = gateway.post("/v1/completions", Some("ann"), body.to_string());
        let answer = answer.await;
        let left = answer.header("ratelimit");
        answer.text().await;
        gateway.wait_for_in_flight("ann", 0).await;
        let left = left
            .split(", ")
            .find_map(|field| field.strip_prefix("\"tokens\";r="));
        4_000_000_000 - left.expect("the field").parse::<u64>().expect("a number")
    };
    // Each figure may contain at most 1,000 tokens of earlier requests. They come back within milliseconds under this
    // budget.
    for _ in 0..10 {
        assert!((50_000..=51_000).contains(&request().await));
    }
    assert!((150..=1_150).contains(&request().await));
}

#[tokio::test]
async fn answers_that_clients_broke_off_do_not_count_in_the_mean() {
    let upstream = Upstream::start(1, End::Never).await;
    let extra = [("UPSTREAMS", &*upstream.account)];
    let gateway = Gateway::start(&[&AMPLE_BUDGETS[..], &extra].concat()).await;
    for _ in 0..10 {
        gateway.stream("ann", 1_000).await.read_words(1).await;
        gateway.wait_for_in_flight("ann", 0).await;
    }
    let answer = gateway.stream("ann", 1_000).await;
    let left = answer.header("ratelimit");
    assert!(left.contains(r#""tokens";r=3999999000"#), "{left}");
}

#[tokio::test]
async fn a_request_with_another_method_uses_no_tokens() {
    let gateway = Gateway::start(&REFUSING).await;
    let body = json!({"model": "small", "prompt": "", "max_tokens": 1}).to_string();
    let answer = gateway.send("PUT", "/v1/completions", Some("ann"), body);
    assert_eq!(answer.await.status(), 405);
    assert_eq!(gateway.used("ann", "tokens").await, 0);
}
