//! The example `gateway`, run as separate processes and used over real sockets.
//!
//! Promises: P20.

mod accounts;
mod client;
#[cfg(feature = "redis")]
mod fleet;
mod tenants;
mod upstream;

use client::{Gateway, REFUSING, SILENT_UPSTREAM, soon};
use serde_json::json;
use std::process::Stdio;
use testing::example;

#[tokio::test]
async fn a_stream_has_the_words_of_the_prompt_up_to_max_tokens_and_an_end() {
    let gateway = Gateway::start(&[("WORD_MS", "0")]).await;
    // The built-in upstream answers `3 words` with three words, and another prompt with its own words.
    for (prompt, words) in [("3 words", 3), ("900 words", 7), ("tell me", 2)] {
        let body = json!({"model": "small", "prompt": prompt, "max_tokens": 7});
        let answer = gateway.post("/v1/completions", Some("ann"), body.to_string());
        let answer = answer.await;
        assert_eq!(answer.header("content-type"), "text/event-stream");
        let text = answer.text().await;
        let first = r#"data: {"choices":[{"text":"#;
        assert_eq!(text.matches(first).count(), words, "{text}");
        assert_eq!(text.matches("data: ").count(), words + 1, "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    }
}

#[tokio::test]
async fn an_answer_has_the_fields_of_each_policy_of_its_tenant() {
    let gateway = Gateway::start(&REFUSING).await;
    // The request reserves 100 tokens of the default budgets.
    let answer = gateway.stream("ann", 100).await;
    let policies = [
        r#""requests";q=5;qu="concurrent-requests""#,
        r#""tokens";q=10000;w=60"#,
        r#""model-tokens";q=60000;w=60"#,
    ];
    assert_eq!(answer.header("ratelimit-policy"), policies.join(", "));
    let left = [
        r#""requests";r=4"#,
        r#""tokens";r=9900"#,
        r#""model-tokens";r=59900"#,
    ];
    assert_eq!(answer.header("ratelimit"), left.join(", "));
}

#[tokio::test]
async fn a_key_sees_its_limits_and_their_use() {
    let gateway = Gateway::start(&[&REFUSING[..], &[SILENT_UPSTREAM]].concat()).await;
    let limits = |requests: u32, tokens: u32| {
        json!([
            {"policy": "requests", "limit": 5, "used": requests, "window_ms": null, "paused_ms": 0},
            {"policy": "tokens", "limit": 10000, "used": tokens, "window_ms": 60000, "paused_ms": 0},
        ])
    };
    let _stream = gateway.stream("ann", 100).await;
    assert_eq!(gateway.limits("ann").await, limits(1, 100));
    assert_eq!(gateway.limits("bob").await, limits(0, 0));
    assert_eq!(gateway.get("/v1/limits", None).await.status(), 401);
    assert_eq!(gateway.get("/health", None).await.status(), 200);
}

#[tokio::test]
async fn a_wrong_request_is_an_error_of_the_client() {
    let gateway = Gateway::start(&REFUSING).await;
    let body = |model: &str, tokens: u32| {
        json!({"model": model, "prompt": "", "max_tokens": tokens}).to_string()
    };
    let path = "/v1/completions";
    let unknown = gateway.post(path, None, body("small", 1)).await;
    assert_eq!(unknown.status(), 401);
    assert_eq!(unknown.error().await["type"], "invalid_request_error");
    for wrong in [body("", 1), body("small", 0), "{}".to_owned()] {
        let answer = gateway.post(path, Some("ann"), wrong.clone()).await;
        assert_eq!(answer.status(), 400, "{wrong}");
        assert_eq!(answer.error().await["type"], "invalid_request_error");
    }
    let too_many = gateway.complete("ann", 10_001).await;
    assert_eq!(too_many.status(), 400);
    let message = "max_tokens: 10001 is more than 10000, the tokens per minute";
    assert_eq!(too_many.error().await["message"], message);
}

#[tokio::test]
async fn a_wrong_setting_is_an_error_that_names_it() {
    let wrong = [
        ("PORT", "65536"),
        ("REDIS_URL", "redis://127.0.0.1:1/"),
        ("KEY_LIMIT", "0"),
        ("KEY_TPM", "-1"),
        ("MODEL_TPM", "many"),
        ("UPSTREAMS", "fake-1,,fake-2"),
        ("UPSTREAMS", "a,a"),
        ("UPSTREAMS", "a=https://localhost/"),
        ("UPSTREAM_LIMIT", "4294967296"),
        ("WORD_MS", "1.5"),
        ("ESTIMATE", "most"),
        ("WAIT_MS", ""),
        ("COOLDOWN_MS", "0"),
    ];
    for (name, value) in wrong {
        let mut command = example::command("gateway", &[("PORT", "0"), (name, value)]);
        let command = command.stdout(Stdio::null()).output();
        let output = soon("the end of the process", command)
            .await
            .expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name}={value}");
        assert!(
            error.starts_with(&format!("{name}: ")),
            "{name}={value}: {error}"
        );
    }
}
