//! The docs of `observe` list all events as lines of a log. Exactly these lines are logged.
//!
//! Promises: P25.

use crate::log::{contains, listen, text};
use http::{Method, Request, Response};
use std::{
    collections::BTreeSet, convert::Infallible, fs::read_to_string, path::Path, time::Duration,
};
use testing::{
    pausing::PauseRecorder,
    redis::RedisServer,
    resp::Raw,
    rig::Rig,
    wait::{eventually, within},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, KeyExtractor, MemorySemaphore, Operate, Permit, Policy,
    RedisSemaphore, Semaphore, key,
    redis::{Builder, WhenUnavailable},
};

const BOUND: Duration = Duration::from_secs(20);

/// The example lines of the docs.
fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/observe/mod.rs");
    let text = read_to_string(path).expect("the docs are text");
    let block = text.split("//! ```text\n").nth(1).expect("it is there");
    let lines = block.lines().take_while(|line| !line.contains("```"));
    let lines = lines.map(|line| line.trim_start_matches("//! "));
    lines.map(shape).collect()
}

/// A line without the parts that differ between runs: each number becomes an N, and the durations of a span are
/// removed.
fn shape(line: &str) -> String {
    let line = line.split(" time.busy").next().unwrap_or(line).trim();
    let mut shape = String::new();
    for letter in line.chars() {
        let letter = if letter.is_ascii_digit() { 'N' } else { letter };
        if letter != 'N' || !shape.ends_with('N') {
            shape.push(letter);
        }
    }
    // A duration may or may not have a fraction.
    shape.replace("N.Nms", "Nms")
}

fn claim() -> Claim {
    Claim::new("ann").with_limit(1)
}

async fn acquire(store: &impl Semaphore) -> Permit {
    store.acquire(claim()).await.expect("it is granted")
}

async fn in_memory() {
    let store = MemorySemaphore::new();
    let held = acquire(&store).await;
    assert!(store.acquire(claim()).await.is_err());
    let wait = claim().with_wait(Duration::from_millis(1));
    assert!(store.acquire(wait).await.is_err());
    held.end_after(Duration::from_millis(1));
    within("it is lost", BOUND, held.lost()).await;
    in_shadow().await;
    with_mistakes().await;
}

async fn with_mistakes() {
    send(key::header("x-account-id")).await;
    send(key::from_extension::<u64>()).await;
    send(key::first_of((
        key::from_extension::<u64>(),
        key::fixed("all"),
    )))
    .await;
    #[cfg(feature = "axum")]
    send(key::matched_path()).await;
    let store = MemorySemaphore::new();
    let limit = |limit| ConcurrencyLimitLayer::new(limit, key::fixed("ann"), store.clone());
    let service = limit(20).layer(limit(5).layer(service_fn(answer)));
    let Ok(_) = service.oneshot(Request::new(String::new())).await;
    let mut connect = Request::new(String::new());
    *connect.method_mut() = Method::CONNECT;
    let service = limit(1).layer(service_fn(async |_| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let Ok(_) = service.oneshot(connect).await;
    with_cooldowns().await;
}

/// Three cooldowns that fail: the policy is not held, the store fails, and the store is slow.
async fn with_cooldowns() {
    let busy = service_fn(async |_: Request<String>| {
        let response = Response::builder().status(429).header("retry-after", "30");
        Ok::<_, Infallible>(response.body(String::new()).expect("a response"))
    });
    for (policy, store) in [
        ("upstream", PauseRecorder::prompt()),
        ("concurrency", PauseRecorder::failing()),
        ("concurrency", PauseRecorder::slow()),
    ] {
        let layer = ConcurrencyLimitLayer::new(1, key::fixed("ann"), store);
        let service = layer.with_cooldown(policy, BOUND).layer(busy);
        let Ok(_) = service.oneshot(Request::new(String::new())).await;
    }
}

async fn send(key: impl KeyExtractor) {
    let layer = ConcurrencyLimitLayer::new(1, key, MemorySemaphore::new());
    let service = layer.layer(service_fn(answer));
    let Ok(_) = service.oneshot(Request::new(String::new())).await;
}

async fn answer(_: Request<String>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("done".to_owned()))
}

/// Logs a refusal under a limit in shadow, which only logs. Faults of the store are logged as under limits in force.
async fn in_shadow() {
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("ann"), MemorySemaphore::new());
    let service = layer.with_shadow(true).layer(service_fn(answer));
    let mut admitted = Vec::new();
    for _ in 0..2 {
        admitted.push(service.clone().oneshot(Request::new(String::new())).await);
    }
}

fn short() -> Builder {
    let builder = RedisSemaphore::builder().lease(Duration::from_millis(600));
    builder.timeout(Duration::from_millis(100))
}

async fn over_a_connection_that_stalls() {
    let rig = Rig::new(short()).await;
    let held = acquire(&rig.store).await;
    rig.proxy.black_hole();
    within("it is lost", BOUND, held.lost()).await;
    let rig = Rig::new(short().when_unavailable(WhenUnavailable::Admit)).await;
    let held = acquire(&rig.store).await;
    rig.proxy.black_hole();
    eventually("it is kept", BOUND, async || held.is_degraded()).await;
    eventually("it is an outage", BOUND, async || {
        drop(acquire(&rig.store).await);
        contains("the store fails")
    })
    .await;
    rig.proxy.forward();
    let is_over = async || contains("the store works again");
    eventually("the outage is over", BOUND, is_over).await;
}

async fn over_a_server_that_is_restarted() {
    let mut server =
        RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let store = short().connect(server.url()).await.expect("it connects");
    drop(acquire(&store).await);
    let set = store.set_limit(&Policy::DEFAULT, None, Some(1), "").await;
    set.expect("it answers");
    let is_known = async || known(&store, &Policy::DEFAULT).await.is_some();
    eventually("the limit is in force", BOUND, is_known).await;
    server.kill();
    let refused = async || {
        let _ = store.acquire(claim()).await;
        contains("not connected error=Connection refused")
    };
    eventually("no connection is made", BOUND, refused).await;
    server.restart();
    let is_back = async || {
        let _ = store.acquire(claim()).await;
        contains("connected again")
    };
    eventually("it is connected again", BOUND, is_back).await;
    let are_lost = async || contains("limits that operators had set are lost");
    eventually("the server has no limits", BOUND, are_lost).await;
    let logged = || {
        text()
            .matches("limits that operators had set are lost")
            .count()
    };
    assert_eq!(logged(), 1);
    over_a_server_that_is_emptied(&store, server.port()).await;
    eventually("that is logged too", BOUND, async || logged() == 2).await;
    over_a_right_that_is_taken_away(&store, server.port()).await;
}

/// The error is logged once, however often the store tries to read the limits.
async fn over_a_right_that_is_taken_away(store: &RedisSemaphore, port: u16) {
    let mut raw = Raw::connect(port).await;
    raw.cmd(&["ACL", "SETUSER", "default", "-hgetall"]).await;
    let logged = || text().matches("does not tell the limits").count();
    let set = store.set_limit(&Policy::DEFAULT, None, Some(5), "");
    set.await
        .expect("it is set, though this process cannot read it");
    eventually("it is logged", BOUND, async || logged() == 1).await;
    let mut refused = async || {
        let stats = raw.cmd(&["INFO", "errorstats"]).await;
        let (_, count) = stats.text().split_once("errorstat_ERR:count=")?;
        count.lines().next()?.parse::<u64>().ok()
    };
    let before = refused().await;
    eventually("it has tried several times more", BOUND, async || {
        refused().await > before.map(|before| before + 3)
    })
    .await;
    assert_eq!(logged(), 1);
    raw.cmd(&["ACL", "SETUSER", "default", "+hgetall"]).await;
    let is_known = async || known(store, &Policy::DEFAULT).await == Some(5);
    eventually("the limit is in force", BOUND, is_known).await;
}

/// An operator sets a limit before any process has noticed that the earlier limits are lost.
async fn over_a_server_that_is_emptied(store: &RedisSemaphore, port: u16) {
    let limit = async |policy: &Policy, limit| {
        let set = store.set_limit(policy, None, Some(limit), "").await;
        set.expect("it answers");
        let is_known = async || known(store, policy).await == Some(limit);
        eventually("the limit is in force", BOUND, is_known).await;
    };
    limit(&Policy::DEFAULT, 2).await;
    Raw::connect(port).await.cmd(&["FLUSHALL"]).await;
    limit(&Policy::from("other"), 3).await;
    assert_eq!(known(store, &Policy::DEFAULT).await, None);
}

/// The limit of Ann that an operator has set, as this store's process knows it.
async fn known(store: &RedisSemaphore, policy: &Policy) -> Option<u32> {
    let usage = store.usage(policy, &"ann".into()).await;
    let usage = usage.ok()?;
    usage.limit.filter(|_| usage.is_limit_set)
}

/// Fails at any event that the docs do not list, even if another test of this program has logged it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_of_the_docs_is_logged_and_no_other_event() {
    listen();
    in_memory().await;
    over_a_connection_that_stalls().await;
    over_a_server_that_is_restarted().await;
    let text = text();
    let written: BTreeSet<_> = text.lines().map(shape).collect();
    let documented = documented();
    let missing: Vec<_> = documented.difference(&written).collect();
    assert!(
        missing.is_empty(),
        "{missing:#?} are not among {written:#?}"
    );
    // Shows that the lines of the docs were found.
    assert!(documented.len() >= 12);
    let message = |line: &String| {
        let (_, event) = line.split_once("tower_semaphore: ")?;
        let message = event.split([' ']).take_while(|word| !word.contains('='));
        Some(message.collect::<Vec<_>>().join(" "))
    };
    let known: BTreeSet<_> = documented.iter().filter_map(message).collect();
    let mut written = written.iter().filter_map(message);
    assert_eq!(written.find(|message| !known.contains(message)), None);
}
