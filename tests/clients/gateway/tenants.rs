//! The limits of API keys and models.
//!
//! Promises: P1, P9, P16, P26.

use super::{
    client::{BOUND, Gateway, REFUSING, RICH, SILENT},
    upstream::{End, Upstream},
};
use serde_json::json;
#[cfg(feature = "redis")]
use testing::redis::RedisServer;
use testing::wait::eventually;
use tokio::time::{Duration, Instant};

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_key_has_its_number_of_requests_in_flight_in_all_gateways_together() {
    let server = RedisServer::start();
    let redis = server.url();
    let settings = [
        &REFUSING[..],
        &[SILENT, ("REDIS_URL", &redis), ("KEY_LIMIT", "3")],
    ]
    .concat();
    let gateways = Gateway::pair(&settings).await;
    let _one = gateways[0].stream("ann", 10).await;
    let _other = gateways[1].stream("ann", 10).await;
    let third = gateways[1].stream("ann", 10).await;
    for gateway in &gateways {
        gateway
            .complete("ann", 10)
            .await
            .refused_by("requests")
            .await;
    }
    gateways[0].stream("bob", 10).await;
    drop(third);
    gateways[0].has_in_flight("ann", 2).await;
    gateways[0].stream("ann", 10).await;
}

/// The key may use a token per second, and has used those of a minute.
#[cfg(feature = "redis")]
#[tokio::test]
async fn tokens_come_back_with_time_for_all_gateways_and_retry_after_is_exact() {
    const SECOND: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let redis = server.url();
    let own = [("REDIS_URL", &*redis), ("WORD_MS", "0"), ("KEY_TPM", "60")];
    let gateways = Gateway::pair(&[&REFUSING[..], &own].concat()).await;
    gateways[0].stream("ann", 60).await.text().await;
    gateways[0].has_in_flight("ann", 0).await;
    let (mut earliest, mut latest) = (Instant::now(), None::<Instant>);
    let mut refusals = 0;
    for gateway in gateways.iter().cycle() {
        let sent = Instant::now();
        let answer = gateway.complete("ann", 4).await;
        if answer.status() == 200 {
            break;
        }
        assert!(
            latest.is_none_or(|latest| sent < latest),
            "refused after Retry-After"
        );
        let retry_after = answer.refused_by("tokens").await;
        assert!((SECOND..=4 * SECOND).contains(&retry_after));
        // It is rounded up to whole seconds.
        earliest = earliest.max(sent + retry_after - SECOND);
        let end = Instant::now() + retry_after;
        latest = Some(latest.map_or(end, |latest| latest.min(end)));
        refusals += 1;
    }
    assert!(refusals > 1);
    assert!(Instant::now() >= earliest, "granted before Retry-After");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_client_that_hangs_up_is_charged_only_the_words_that_it_was_sent() {
    let server = RedisServer::start();
    let redis = server.url();
    let upstream = Upstream::start(400, End::Never).await;
    let own = [
        ("REDIS_URL", &*redis),
        ("UPSTREAMS", &*upstream.account),
        ("KEY_TPM", "1000"),
    ];
    let [one, other] = Gateway::pair(&[&REFUSING[..], &own].concat()).await;
    let begun = Instant::now();
    let mut stream = one.stream("ann", 1_000).await;
    stream.read_words(400).await;
    other
        .complete("ann", 1_000)
        .await
        .refused_by("tokens")
        .await;
    drop(stream);
    other.has_in_flight("ann", 0).await;
    let used = other.used("ann", "tokens").await;
    let returned = begun.elapsed().as_secs_f64() * 1_000.0 / 60.0;
    assert!(
        used <= 400 && used as f64 >= 400.0 - returned.ceil(),
        "{used}"
    );
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_waits_for_an_account_is_charged_nothing() {
    let own = [("WAIT_MS", "600000"), ("UPSTREAMS", "fake")];
    let gateway = Gateway::start(&own).await;
    gateway.overload("fake", 200).await;
    let waits = tokio::spawn(gateway.complete("ann", 500));
    let reserves = async || gateway.used("ann", "tokens").await == 500;
    eventually("the request has its tokens", BOUND, reserves).await;
    waits.abort();
    gateway.has_in_flight("ann", 0).await;
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
    gateway.has_in_flight("ann", 0).await;
    let used = gateway.used("ann", "tokens").await;
    let returned = begun.elapsed().as_secs_f64() * 1_000.0 / 60.0;
    assert!(
        used <= 700 && used as f64 >= 700.0 - returned.ceil(),
        "{used}"
    );
}

/// A silent stream has reserved the model's whole budget, so all requests of both keys wait. Its end makes room for six.
#[cfg(feature = "redis")]
#[tokio::test]
async fn two_keys_that_wait_for_a_model_take_turns_in_all_gateways() {
    let server = RedisServer::start();
    let redis = server.url();
    let settings = [
        SILENT,
        ("REDIS_URL", &redis),
        ("ESTIMATE", "max"),
        ("WAIT_MS", "600000"),
        ("KEY_LIMIT", "20"),
        ("MODEL_TPM", "6000"),
    ];
    let gateways = Gateway::pair(&settings).await;
    let all = gateways[0].stream("zoe", 6_000).await;
    let requests = |number: usize, key: &'static str, count: u64| {
        let requests = (0..count).map(|_| tokio::spawn(gateways[number].complete(key, 1_000)));
        requests.collect::<Vec<_>>()
    };
    let of_ann = requests(0, "ann", 8);
    gateways[0].has_in_flight("ann", 8).await;
    let of_bob = requests(1, "bob", 4);
    gateways[1].has_in_flight("bob", 4).await;
    drop(all);
    let admitted = |requests: &[tokio::task::JoinHandle<_>]| {
        requests
            .iter()
            .filter(|request| request.is_finished())
            .count()
    };
    let six = async || admitted(&of_ann) + admitted(&of_bob) >= 6;
    eventually("six requests are admitted", BOUND, six).await;
    assert_eq!((admitted(&of_ann), admitted(&of_bob)), (3, 3));
}

#[tokio::test]
async fn a_model_without_tokens_refuses_each_key_and_no_other_model() {
    let own = [SILENT, ("MODEL_TPM", "1000")];
    let gateway = Gateway::start(&[&REFUSING[..], &own].concat()).await;
    let _stream = gateway.stream("ann", 600).await;
    gateway
        .complete("bob", 600)
        .await
        .refused_by("model-tokens")
        .await;
    let body = json!({"model": "large", "prompt": "", "max_tokens": 600}).to_string();
    let other = gateway.post("/v1/completions", Some("bob"), body).await;
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn without_answers_a_request_reserves_its_max_tokens_up_to_the_whole_budget() {
    for (tokens, left) in [(700, 300), (5_000, 0)] {
        let gateway = Gateway::start(&[SILENT, ("KEY_TPM", "1000")]).await;
        let answer = gateway.stream("ann", tokens).await;
        let left = format!(r#""tokens";r={left},"#);
        assert!(answer.header("ratelimit").contains(&left), "{answer:?}");
    }
}

#[tokio::test]
async fn after_ten_answers_a_request_reserves_half_more_than_their_mean() {
    let gateway = Gateway::start(&[&RICH[..], &[("WORD_MS", "0")]].concat()).await;
    let request = async || {
        let body = json!({"model": "small", "prompt": "100 words", "max_tokens": 50000});
        let answer = gateway.post("/v1/completions", Some("ann"), body.to_string());
        let answer = answer.await;
        let left = answer.header("ratelimit");
        answer.text().await;
        gateway.has_in_flight("ann", 0).await;
        let left = left
            .split(", ")
            .find_map(|field| field.strip_prefix("\"tokens\";r="));
        4_000_000_000 - left.expect("the field").parse::<u64>().expect("a number")
    };
    // Used tokens come back within a few milliseconds.
    for _ in 0..10 {
        assert!((50_000..=51_000).contains(&request().await));
    }
    assert!((150..=1_150).contains(&request().await));
}
