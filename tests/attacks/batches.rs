//! What one claim of a batch does to the others, and to the server.

use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testing::{
    machine::alone,
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    stall::StallWatch,
    wait::eventually,
};
use tokio::{task::JoinHandle, time::sleep};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// From then on failures count: the link is slow, and the connections are made again.
const WARM: Duration = Duration::from_millis(2_500);
const TIME: Duration = Duration::from_millis(6_500);

/// Each way: a round trip takes more than half of the timeout.
const LINK: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(1);

/// Claims one permit after the other. Returns what failed in the store, of how many.
fn load(store: &RedisSemaphore, key: String, limit: u32) -> JoinHandle<(Vec<AcquireError>, usize)> {
    let store = store.clone();
    tokio::spawn(async move {
        let (mut failed, mut count, start) = (Vec::new(), 0, Instant::now());
        while start.elapsed() < TIME {
            let claim = Claim::new(key.clone()).with_limit(limit);
            let granted = store.acquire(claim).await;
            // Until then it connects.
            let counts = start.elapsed() > WARM;
            count += usize::from(counts);
            match granted {
                Ok(_permit) => sleep(Duration::from_millis(20)).await,
                Err(error @ AcquireError::Store { .. }) if counts => failed.push(error),
                Err(_) => {}
            }
        }
        (failed, count)
    })
}

/// How many claims on keys of their own fail beside claims on a key with `limit`, of how many, and
/// how many connections were made meanwhile.
async fn failures_beside(limit: u32, is_cut: bool) -> (usize, usize, usize) {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().timeout(TIMEOUT);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let hot: Vec<_> = (0..24)
        .map(|_| load(&store, "hot".to_owned(), limit))
        .collect();
    let cold: Vec<_> = (0..24)
        .map(|own| load(&store, format!("own{own}"), 1))
        .collect();
    sleep(WARM / 5).await;
    proxy.delay(LINK, LINK);
    if is_cut {
        proxy.kill(End::Reset);
    }
    sleep(WARM * 4 / 5).await;
    let before = proxy.count(b"CLIENT") + proxy.count(b"HELLO");
    let cold = join_all(cold).await;
    let after = proxy.count(b"CLIENT") + proxy.count(b"HELLO");
    join_all(hot).await;
    let (mut failed, mut count) = (0, 0);
    for task in cold {
        let (errors, claims) = task.expect("no panic");
        failed += errors.len();
        count += claims;
    }
    (failed, count, after - before)
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_refused_beside_them_fail_no_claims_of_other_keys() {
    let result = failures_beside(4, false).await;
    assert!(
        result.0 * 20 <= result.1,
        "failed, claims, handshakes: {result:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_on_a_long_link_is_over_when_it_has_reconnected() {
    let result = failures_beside(1_000, true).await;
    assert!(
        result.0 * 20 <= result.1,
        "failed, claims, handshakes: {result:?}"
    );
}

/// What no script may take, with much room for a busy machine: in microseconds.
const SLOW: &str = "200000";

/// A machine that stalls for longer may stall the server amid any script.
const CALM: Duration = Duration::from_millis(100);

/// Has the server note scripts that keep its other clients waiting, from now on.
async fn note_slow_scripts(raw: &mut Raw) -> StallWatch {
    let set = ["CONFIG", "SET", "slowlog-log-slower-than", SLOW];
    assert_eq!(raw.cmd(&set).await.text(), "OK");
    assert_eq!(raw.cmd(&["SLOWLOG", "RESET"]).await.text(), "OK");
    StallWatch::start()
}

async fn slow_scripts(raw: &mut Raw, watch: StallWatch) -> Result<(), String> {
    let slow = raw.cmd(&["SLOWLOG", "LEN"]).await.int();
    let stalled = watch.longest();
    match slow == 0 || stalled > CALM {
        true => Ok(()),
        false => Err(format!("{slow} scripts; {stalled:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_permits_that_were_flushed_come_back() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(6));
    let builder = builder.timeout(TIMEOUT);
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut permits = Vec::new();
    for _ in 0..128 {
        let claim = Claim::new("heavy").with_limit(1_000_000).with_weight(1_000);
        permits.push(store.acquire(claim).await.expect("there is room"));
    }
    let mut raw = Raw::connect(server.port()).await;
    let watch = note_slow_scripts(&mut raw).await;
    raw.cmd(&["FLUSHALL"]).await;
    eventually("all are back", Duration::from_secs(30), async || {
        raw.zcard("semaphore:{concurrency:heavy}:held").await == 128_000
    })
    .await;
    assert!(!permits.iter().any(Permit::is_lost), "nobody is told");
    slow_scripts(&mut raw, watch).await.expect("none is slow");
}

/// Has 300,000 units granted from the queue of a key at once. What the scripts took, if any was slow.
async fn heavy_waiters(store: &RedisSemaphore, raw: &mut Raw, key: &str) -> Result<(), String> {
    let (wait, queue) = (
        Duration::from_secs(30),
        format!("semaphore:{{concurrency:{key}}}:queue"),
    );
    let claim = Claim::new(key.to_owned()).with_limit(1);
    let _holder = store.acquire(claim.clone()).await.expect("there is room");
    let head = tokio::spawn(store.acquire(claim.clone().with_wait(wait)));
    eventually("the head waits", wait, async || {
        raw.zcard(&queue).await == 1
    })
    .await;
    let claim = claim.with_limit(1_000_000).with_weight(1_000);
    let claim = claim.with_wait(wait);
    let waiters: Vec<_> = (0..300)
        .map(|_| tokio::spawn(store.acquire(claim.clone())))
        .collect();
    eventually("all wait", wait, async || raw.zcard(&queue).await == 301).await;
    let watch = note_slow_scripts(raw).await;
    head.abort();
    let granted = join_all(waiters).await;
    let is_granted = |granted: &&Result<_, _>| !matches!(granted, Ok(Ok(_)));
    let failed = granted.iter().filter(is_granted).count();
    assert_eq!(failed, 0, "{:?}", granted.iter().find(is_granted));
    slow_scripts(raw, watch).await
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_waiters_that_are_granted_together_stall_no_other_client() {
    let _alone = alone().await;
    let server = RedisServer::start();
    // A busy machine is no failure of the store.
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(30));
    let builder = builder.timeout(Duration::from_secs(5));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    // It stalls some rounds, but not the best of several.
    let mut slow = Vec::new();
    for key in ["first", "second", "third"] {
        match heavy_waiters(&store, &mut raw, key).await {
            Ok(()) => return,
            Err(error) => slow.push(error),
        }
    }
    panic!("{slow:?}");
}
