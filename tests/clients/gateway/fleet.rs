//! Gateways that share one Redis.
//!
//! Promises: P1, P9, P16, P17, P18, P26.

use super::{
    client::{AMPLE_BUDGETS, Answer, BOUND, Gateway, REFUSING, SILENT_UPSTREAM, soon},
    tenants::assert_charged_only_words_sent,
    upstream::{End, Upstream},
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, stores::connected, wait::eventually};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tower_semaphore::{Operate, RedisSemaphore};

/// Starts two gateways with the same settings.
async fn pair(settings: &[(&str, &str)]) -> [Gateway; 2] {
    [
        Gateway::start(settings).await,
        Gateway::start(settings).await,
    ]
}

/// Starts four gateways whose requests wait. Only the budgets of models are not ample.
async fn four(redis: &str, settings: &[(&str, &str)]) -> [Arc<Gateway>; 4] {
    let waiting = [
        ("REDIS_URL", redis),
        ("ESTIMATE", "max"),
        ("WAIT_MS", "600000"),
        ("KEY_LIMIT", "1000"),
        ("UPSTREAM_LIMIT", "1000"),
        AMPLE_BUDGETS[0],
    ];
    let settings = [&waiting[..], settings].concat();
    let [one, other] = pair(&settings).await;
    let [third, fourth] = pair(&settings).await;
    [one, other, third, fourth].map(Arc::new)
}

/// Asserts that no client has ended, as after a panic.
fn assert_clients_go_on(clients: &mut JoinSet<()>) {
    let ended = clients.try_join_next();
    assert!(ended.is_none(), "{ended:?}");
}

#[tokio::test]
async fn a_key_has_its_number_of_requests_in_flight_in_all_gateways_together() {
    let server = RedisServer::start();
    let redis = server.url();
    let extra = [SILENT_UPSTREAM, ("REDIS_URL", &redis), ("KEY_LIMIT", "3")];
    let gateways = pair(&[&REFUSING[..], &extra].concat()).await;
    let _one = gateways[0].stream("ann", 10).await;
    let _other = gateways[1].stream("ann", 10).await;
    let third = gateways[1].stream("ann", 10).await;
    for gateway in &gateways {
        let refused = gateway.complete("ann", 10).await;
        refused.assert_refused_by("requests").await;
    }
    gateways[0].stream("bob", 10).await;
    drop(third);
    gateways[0].wait_for_in_flight("ann", 2).await;
    gateways[0].stream("ann", 10).await;
}

/// The key gets a token per second, and has used the tokens of a minute.
#[tokio::test]
async fn tokens_come_back_with_time_for_all_gateways_and_retry_after_is_exact() {
    const SECOND: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let redis = server.url();
    let extra = [("REDIS_URL", &*redis), ("WORD_MS", "0"), ("KEY_TPM", "60")];
    let gateways = pair(&[&REFUSING[..], &extra].concat()).await;
    gateways[0].stream("ann", 60).await.text().await;
    gateways[0].wait_for_in_flight("ann", 0).await;
    // The first and the last time for a grant, by the answers so far.
    let (mut earliest, mut latest) = (Instant::now(), None::<Instant>);
    let (mut turns, mut refusals) = (gateways.iter().cycle(), 0);
    eventually("the tokens are back", BOUND, async || {
        let gateway = turns.next().expect("it never ends");
        let sent = Instant::now();
        let answer = gateway.complete("ann", 4).await;
        if answer.status() == 200 {
            return true;
        }
        let is_early = latest.is_none_or(|latest| sent < latest);
        assert!(is_early, "refused after Retry-After");
        let retry_after = answer.assert_refused_by("tokens").await;
        assert!((SECOND..=4 * SECOND).contains(&retry_after));
        // `Retry-After` is rounded up to whole seconds.
        earliest = earliest.max(sent + retry_after - SECOND);
        let end = Instant::now() + retry_after;
        latest = Some(latest.map_or(end, |latest| latest.min(end)));
        refusals += 1;
        false
    })
    .await;
    assert!(refusals > 1);
    assert!(Instant::now() >= earliest, "granted before Retry-After");
}

#[tokio::test]
async fn a_client_that_hangs_up_is_charged_in_all_gateways_only_the_words_that_it_was_sent() {
    let server = RedisServer::start();
    let redis = server.url();
    let upstream = Upstream::start(400, End::Never).await;
    let extra = [
        ("REDIS_URL", &*redis),
        ("UPSTREAMS", &*upstream.account),
        ("KEY_TPM", "1000"),
    ];
    let [one, other] = pair(&[&REFUSING[..], &extra].concat()).await;
    assert_charged_only_words_sent(&one, &other).await;
}

/// A silent stream reserves the model's whole budget, so all requests of both keys wait. Its end makes room for six.
#[tokio::test]
async fn two_keys_that_wait_for_a_model_take_turns_in_all_gateways() {
    let server = RedisServer::start();
    let redis = server.url();
    let settings = [
        SILENT_UPSTREAM,
        ("REDIS_URL", &redis),
        ("ESTIMATE", "max"),
        ("WAIT_MS", "600000"),
        ("KEY_LIMIT", "20"),
        ("MODEL_TPM", "6000"),
    ];
    let gateways = pair(&settings).await;
    let whole_budget = gateways[0].stream("zoe", 6_000).await;
    let requests = |number: usize, key: &'static str, count: u64| {
        let requests = (0..count).map(|_| tokio::spawn(gateways[number].complete(key, 1_000)));
        requests.collect::<Vec<_>>()
    };
    let anns = requests(0, "ann", 8);
    gateways[0].wait_for_in_flight("ann", 8).await;
    let bobs = requests(1, "bob", 4);
    gateways[1].wait_for_in_flight("bob", 4).await;
    drop(whole_budget);
    let admitted = |requests: &[JoinHandle<Answer>]| {
        let admitted = requests.iter().filter(|request| request.is_finished());
        admitted.count()
    };
    let six = async || admitted(&anns) + admitted(&bobs) >= 6;
    eventually("six requests are admitted", BOUND, six).await;
    assert_eq!((admitted(&anns), admitted(&bobs)), (3, 3));
}

/// A model gets 1,000 tokens per second. The tokens of its first minute are used at once. Then twelve clients of each
/// key wait for more all the time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 20 s and needs a quiet machine"]
async fn two_keys_that_wait_for_a_model_get_the_same_tokens_from_four_gateways_and_no_more_than_it_has()
 {
    const MINUTE: u32 = 60_000;
    const EACH: u32 = 50;
    const ANSWERS: u32 = 400;
    let server = RedisServer::start();
    let settings = [("WORD_MS", "0"), ("MODEL_TPM", "60000")];
    let gateways = four(&server.url(), &settings).await;
    let begun = Instant::now();
    gateways[0].stream("zoe", MINUTE).await.text().await;
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for gateway in gateways {
        for key in ["ann", "bob"].repeat(3) {
            let (gateway, answers) = (gateway.clone(), answers.clone());
            clients.spawn(async move {
                loop {
                    gateway.stream(key, EACH).await.text().await;
                    if answers.send(key).is_err() {
                        return;
                    }
                }
            });
        }
    }
    drop(answers);
    let mut tokens = BTreeMap::<_, u32>::new();
    let mut granted = MINUTE;
    for _ in 0..ANSWERS {
        let key = soon("an answer", answered.recv()).await;
        assert_clients_go_on(&mut clients);
        *tokens.entry(key.expect("clients go on")).or_default() += EACH;
        granted += EACH;
        // The model begins with all tokens of a minute, and gets more with time.
        let bound = f64::from(MINUTE) * (1.0 + begun.elapsed().as_secs_f64() / 60.0);
        assert!(f64::from(granted) <= bound, "{granted} > {bound}");
    }
    let half = ANSWERS * EACH / 2;
    for tokens in tokens.values() {
        assert!(tokens.abs_diff(half) <= half / 100, "{tokens:?}");
    }
    assert_eq!(tokens.len(), 2);
}

/// A stream reserves its words at once and takes ten windows to send them. Time returns used tokens within a window,
/// and must not return reserved ones.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute"]
async fn streams_of_ten_windows_keep_their_reservations_and_use_at_most_the_limit_in_any_interval()
{
    const LIMIT: i64 = 300;
    const WORDS: i64 = 100;
    const STREAMS: i64 = 16;
    /// Clients may read words this late, about half a second of them.
    const UNREAD: i64 = 30;
    let server = RedisServer::start();
    let settings = [
        ("MINUTE_MS", "1000"),
        ("WORD_MS", "100"),
        ("MODEL_TPM", "300"),
    ];
    let gateways = four(&server.url(), &settings).await;
    // How the number of words that are granted and not read changes.
    let (changes, mut changed) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for gateway in gateways {
        for key in ["ann", "bob"] {
            let (gateway, changes) = (gateway.clone(), changes.clone());
            clients.spawn(async move {
                loop {
                    let mut answer = gateway.stream(key, WORDS as u32).await;
                    changes.send(WORDS).expect("the test goes on");
                    let mut rest = String::new();
                    while let Some(words) = answer.next_words(&mut rest).await {
                        changes.send(-words).expect("the test goes on");
                    }
                }
            });
        }
    }
    drop(changes);
    let (mut unread, mut words, mut reads) = (0, 0, Vec::new());
    while words < STREAMS * WORDS {
        let change = soon("a word or a grant", changed.recv()).await;
        assert_clients_go_on(&mut clients);
        let change = change.expect("clients go on");
        unread += change;
        assert!(unread <= LIMIT + UNREAD, "{unread} are reserved");
        if change < 0 {
            words -= change;
            reads.push((Instant::now(), -change));
        }
    }
    for (first, (begin, _)) in reads.iter().enumerate() {
        let mut used = 0;
        for (end, words) in &reads[first..] {
            used += words;
            let windows = (*end - *begin).as_secs_f64();
            assert!(used as f64 <= LIMIT as f64 * (1.0 + windows), "{used}");
        }
    }
    clients.shutdown().await;
}

#[tokio::test]
async fn an_account_that_answers_429_is_paused_for_all_gateways_and_the_other_account_serves() {
    let server = RedisServer::start();
    let redis = server.url();
    let extra = [("REDIS_URL", &*redis), ("WORD_MS", "0")];
    let [one, other] = pair(&[&REFUSING[..], &extra].concat()).await;
    one.overload_for_seconds("fake-1", 600).await;
    // The accounts take turns, so one of two requests has tried the first account.
    for _ in 0..2 {
        assert_eq!(one.stream("ann", 1).await.account(), "fake-2");
    }
    // The built-in upstream of the other gateway is not overloaded.
    for _ in 0..4 {
        assert_eq!(other.stream("ann", 1).await.account(), "fake-2");
    }
    one.overload_for_seconds("fake-2", 100).await;
    one.complete("ann", 1)
        .await
        .assert_refused_by("upstream")
        .await;
    // The second account is back after 100 s, before the first, less the time that has passed on a busy machine.
    let retry_after = other
        .complete("ann", 1)
        .await
        .assert_refused_by("upstream")
        .await;
    assert!((Duration::from_secs(50)..=Duration::from_secs(100)).contains(&retry_after));
}

#[tokio::test]
async fn an_account_that_an_operator_has_closed_leaves_its_requests_to_the_other() {
    let server = RedisServer::start();
    let redis = server.url();
    let store = connected(async || RedisSemaphore::connect(&redis).await).await;
    let (policy, account) = ("upstream".into(), "fake-1".into());
    let closed = store.set_limit(&policy, Some(&account), Some(0), "").await;
    closed.expect("the server answers");
    let extra = [("REDIS_URL", &*redis), ("WORD_MS", "0")];
    let gateway = Gateway::start(&[&REFUSING[..], &extra].concat()).await;
    let mut accounts = Vec::new();
    eventually("the gateway knows the limit", BOUND, async || {
        accounts.push(gateway.stream("ann", 1).await.account());
        accounts.ends_with(&["fake-2"; 4].map(str::to_owned))
    })
    .await;
}

#[tokio::test]
async fn an_account_has_its_number_of_requests_in_flight_in_all_gateways_together() {
    let server = RedisServer::start();
    let redis = server.url();
    let extra = [
        SILENT_UPSTREAM,
        ("REDIS_URL", &redis),
        ("UPSTREAMS", "only"),
        ("UPSTREAM_LIMIT", "2"),
    ];
    let [one, other] = pair(&[&REFUSING[..], &extra].concat()).await;
    let _first = one.stream("ann", 1).await;
    let second = other.stream("ann", 1).await;
    one.complete("bob", 1)
        .await
        .assert_refused_by("upstream")
        .await;
    drop(second);
    eventually("a request is admitted", BOUND, async || {
        one.complete("bob", 1).await.status() == 200
    })
    .await;
}

#[tokio::test]
async fn without_redis_a_stream_goes_on_and_the_next_request_gets_503() {
    let mut server = RedisServer::start();
    let url = server.url();
    let gateway = Gateway::start(&[("REDIS_URL", &url), ("WORD_MS", "10")]).await;
    let mut stream = gateway.stream("ann", 200).await;
    stream.read_words(1).await;
    server.kill();
    let refused = gateway.complete("ann", 1).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.header("retry-after"), "1");
    let error = refused.error().await;
    assert_eq!(error["type"], "server_error");
    assert_eq!(error["message"], "no request can be admitted now");
    assert_eq!(gateway.get("/health", None).await.status(), 503);
    assert!(stream.text().await.ends_with("data: [DONE]\n\n"));
}
