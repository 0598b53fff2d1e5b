//! The example `gateway`, run as a separate process and used over real sockets.
//!
//! Promises: P1, P9, P16.

mod client;

#[cfg(feature = "redis")]
use client::BOUND;
use client::{ALL, Gateway, soon};
use serde_json::json;

#[tokio::test]
async fn a_request_weighs_what_its_max_tokens_say_under_all_three_limits() {
    let gateway = Gateway::start(&[]).await;
    for (tokens, left) in [(1, 31), (16, 31), (17, 30), (ALL, 0)] {
        let answer = gateway
            .stream(&format!("key-{tokens}"), "small", tokens)
            .await;
        let limits = ["key", "model", "fleet"].into_iter().zip([32, 256, 1_024]);
        let limits = limits.map(|(name, limit)| format!(r#""{name}";q={limit};qu="16-tokens""#));
        let policy = answer.header("ratelimit-policy");
        assert!(
            limits.into_iter().all(|limit| policy.contains(&limit)),
            "{policy}"
        );
        let own = format!(r#""key";r={left}"#);
        assert!(answer.header("ratelimit").starts_with(&own), "{own}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_heavy_is_told_so_in_tokens() {
    let gateway = Gateway::start(&[]).await;
    // The second number is more than any claim may weigh.
    for tokens in [ALL + 1, 20_000, u32::MAX] {
        let too_heavy = json!({"max_tokens": tokens});
        let too_heavy = gateway.complete("ann", &too_heavy).await;
        assert_eq!(too_heavy.status(), 400);
        let error = too_heavy.error().await;
        assert_eq!(error["type"], "invalid_request_error");
        let told = format!("max_tokens: {tokens} is more than 512, the limit of this key");
        assert_eq!(error["message"], told);
    }
}

#[tokio::test]
async fn an_api_key_over_its_limit_gets_a_429_as_such_clients_expect_it() {
    let gateway = Gateway::start(&[]).await;
    let _stream = gateway.stream("ann", "small", ALL).await;
    let refused = gateway.complete("ann", &json!({"max_tokens": ALL})).await;
    assert_eq!(refused.status(), 429);
    let retry_after: u32 = refused.header("retry-after").parse().expect("seconds");
    assert!(retry_after >= 1);
    assert!(refused.header("ratelimit").starts_with(r#""key";r=0;t="#));
    let policy = refused.header("ratelimit-policy");
    assert_eq!(policy.matches(r#"qu="16-tokens""#).count(), 3, "{policy}");
    let error = refused.error().await;
    assert_eq!(error["type"], "rate_limit_exceeded");
    assert_eq!(error["code"], "rate_limit_exceeded");
    assert_eq!(error["message"], "the limit of this key is reached");
    gateway.stream("bob", "small", ALL).await;
}

#[tokio::test]
async fn a_request_without_a_key_or_without_a_completion_is_an_error_of_the_client() {
    let gateway = Gateway::start(&[]).await;
    let body = json!({"model": "small", "prompt": "", "max_tokens": 1}).to_string();
    let unknown = gateway.post(None, body).await;
    assert_eq!(unknown.status(), 401);
    assert_eq!(unknown.error().await["type"], "invalid_request_error");
    let nothing = json!({"model": "", "prompt": "", "max_tokens": 1}).to_string();
    assert_eq!(gateway.post(Some("ann"), nothing).await.status(), 400);
    assert_eq!(
        gateway.post(Some("ann"), "{}".to_owned()).await.status(),
        400
    );
}

#[tokio::test]
async fn a_model_that_is_full_refuses_other_keys_and_no_other_model() {
    let gateway = Gateway::start(&[]).await;
    let _streams = gateway.crowd(1).await;
    let refused_by = gateway
        .overflow((0..12).map(|_| "model-0".to_owned()))
        .await;
    assert!(!refused_by.is_empty());
    assert!(
        refused_by.iter().all(|by| by.contains("this model")),
        "{refused_by:?}"
    );
    gateway.stream("ann", "small", ALL).await;
}

#[tokio::test]
async fn the_fleet_is_full_when_four_models_are() {
    let gateway = Gateway::start(&[]).await;
    let _streams = gateway.crowd(4).await;
    let refused_by = gateway
        .overflow((4..44).map(|model| format!("model-{model}")))
        .await;
    assert!(!refused_by.is_empty());
    assert!(
        refused_by.iter().all(|by| by.contains("this fleet")),
        "{refused_by:?}"
    );
}

#[tokio::test]
async fn a_stream_frees_units_while_it_runs_and_sends_all_its_words() {
    let gateway = Gateway::start(&[]).await;
    let whole = gateway.stream("ann", "small", 40).await;
    let whole = tokio::spawn(whole.text());
    let _long = gateway.stream("bob", "small", ALL).await;
    // The long stream outlasts everything below.
    soon("a unit is free", async {
        while gateway
            .complete("bob", &json!({"max_tokens": 16}))
            .await
            .status()
            != 200
        {}
    })
    .await;
    let text = whole.await.expect("no panic");
    assert_eq!(text.matches(r#"{"choices":[{"text":"#).count(), 40);
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn an_interactive_request_goes_before_a_batch_one_in_all_gateways() {
    use testing::{redis::RedisServer, resp::Raw, wait::eventually};
    let server = RedisServer::start();
    let (url, mut raw) = (server.url(), Raw::connect(server.port()).await);
    let gateways = [
        Gateway::start(&[("REDIS_URL", &url)]).await,
        Gateway::start(&[("REDIS_URL", &url)]).await,
    ];
    let _long = gateways[0].stream("ann", "small", ALL).await;
    let batch = json!({"max_tokens": ALL, "service_tier": "batch"});
    let batch = tokio::spawn(gateways[0].complete("ann", &batch));
    let queued = async || raw.zcard("semaphore:2:{key:ann}:queue").await == 1;
    eventually("the batch request waits", BOUND, queued).await;
    // This request needs everything that the stream holds, so the requests behind it wait until the stream has ended.
    soon("a unit is free", async {
        while gateways[1]
            .complete("ann", &json!({"max_tokens": 16}))
            .await
            .status()
            != 200
        {}
    })
    .await;
    assert!(!batch.is_finished());
    batch.abort();
}

/// This holds even while a job waits for more than is left.
#[cfg(feature = "redis")]
#[tokio::test]
async fn batch_jobs_leave_a_quarter_of_a_model_to_interactive_requests() {
    use testing::{redis::RedisServer, resp::Raw, wait::eventually};
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let gateway = Gateway::start(&[("REDIS_URL", &server.url())]).await;
    let batch = json!({"max_tokens": ALL, "service_tier": "batch"});
    let mut jobs = Vec::new();
    for number in 0..6 {
        let job = gateway.complete(&format!("key-{number}"), &batch).await;
        assert_eq!(job.status(), 200);
        jobs.push(job);
    }
    let waits = tokio::spawn(gateway.complete("key-6", &batch));
    let queued = async || raw.keys("semaphore:2:{*:small}:queue").await.len() == 1;
    eventually("the next job waits", BOUND, queued).await;
    for key in ["ann", "bob"] {
        let _stream = gateway.stream(key, "small", 256).await;
    }
    waits.abort();
}
