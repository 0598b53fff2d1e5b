//! What happens when Redis is stopped, gone, or back without its data.

use std::time::{Duration, Instant};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{
    AcquireError, Claim, Permit, RedisSemaphore, Semaphore,
    redis::{self, ConnectError},
};

const LEASE: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(10);
/// Within this, a store that is back serves again.
const BACK: Duration = Duration::from_secs(2);
/// A whole try, reconnect included, is over in 500 ms; the rest is slack for a busy machine.
const TRY: Duration = Duration::from_millis(1_500);
const HELD: &str = "semaphore:{concurrency:a}:held";

async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    builder.connect(server.url()).await.expect("it connects")
}

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

/// The store's own description of its failure; any other error is a wrong answer.
async fn failure(store: &RedisSemaphore) -> redis::Error {
    let start = Instant::now();
    let answer = store.acquire(claim(5)).await;
    assert!(start.elapsed() < TRY, "it took {:?}", start.elapsed());
    let error = answer.expect_err("nobody could have granted it");
    let AcquireError::Store { source: error, .. } = error else {
        panic!("not reported as a failure of the store: {error}");
    };
    let source = std::error::Error::source(&error).expect("it has a cause");
    source
        .downcast_ref::<redis::Error>()
        .expect("it is ours")
        .clone()
}

/// All five are granted, so nothing was left behind by claims that failed.
async fn serves_in_full(store: &RedisSemaphore, within: Duration) {
    eventually("it serves again, in full", within, async || {
        let mut permits = Vec::new();
        while let Ok(permit) = store.acquire(claim(5)).await {
            permits.push(permit);
        }
        let all = permits.len() == 5;
        for permit in permits {
            permit.release().await;
        }
        all
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_is_a_failure_of_the_store_and_serves_in_full_when_it_goes_on() {
    let server = RedisServer::start();
    let store = store(&server).await;
    drop(store.acquire(claim(5)).await);
    let mut raw = Raw::connect(server.port()).await;
    let pause = ["CLIENT", "PAUSE", "2500", "ALL"];
    assert_eq!(raw.cmd(&pause).await.text(), "OK");
    let paused = Instant::now();
    for _ in 0..8 {
        failure(&store).await;
    }
    let rest = Duration::from_millis(2_500).saturating_sub(paused.elapsed());
    serves_in_full(&store, rest + BACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_another_program_has_written_over_keeps_no_unit_of_other_keys() {
    let server = RedisServer::start();
    // A lease in which nothing ends by itself.
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(600));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let fleet = Claim::new("fleet").with_limit(1);
    let claims = || [claim(5), fleet.clone()].into();
    let permit = store.acquire_all(claims()).await.expect("there is room");
    raw.cmd(&["SET", HELD, "no set"]).await;
    drop(permit);
    let next = store.acquire(fleet.clone()).await;
    assert!(next.is_ok(), "the wider unit is free at once: {next:?}");
    drop(next);
    assert!(store.acquire_all(claims()).await.is_err());
    raw.cmd(&["DEL", HELD]).await;
    let granted = store.acquire_all(claims()).await;
    assert!(granted.is_ok(), "nothing is left behind: {granted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_claims_on_a_stopped_server_end_in_time_and_leave_nothing_behind() {
    let server = RedisServer::start();
    let store = store(&server).await;
    drop(store.acquire(claim(5)).await);
    server.stop();
    let claims: Vec<_> = (0..500)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { failure(&store).await })
        })
        .collect();
    for claim in claims {
        claim.await.expect("it did not panic");
    }
    server.cont();
    serves_in_full(&store, BACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_come_back_to_a_server_that_lost_its_data() {
    let mut server = RedisServer::start();
    let store = store(&server).await;
    let mut permits: Vec<Permit> = Vec::new();
    for _ in 0..3 {
        permits.push(store.acquire(claim(5)).await.expect("there is room"));
    }
    server.restart();
    let mut raw = Raw::connect(server.port()).await;
    eventually("all three are back", BOUND, async || {
        raw.zmembers(HELD).await.len() == 3
    })
    .await;
    eventually("their holders know", BOUND, async || {
        !permits.iter().any(Permit::is_lost)
    })
    .await;
    drop(permits);
    eventually("and gone", BOUND, async || {
        raw.zmembers(HELD).await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_shorter_than_the_lease_loses_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = store.acquire(claim(1)).await.expect("there is room");
    server.stop();
    tokio::time::sleep(LEASE / 3).await;
    server.cont();
    let token = permit.token();
    let mut raw = Raw::connect(server.port()).await;
    let end = raw.zmembers(HELD).await[0].1;
    eventually("it is refreshed", BOUND, async || {
        raw.zmembers(HELD).await[0].1 > end
    })
    .await;
    assert!(!permit.is_lost());
    assert_eq!(permit.token(), token);
    assert!(permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_does_not_stop_acquire_refresh_or_release() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = store.acquire(claim(5)).await.expect("there is room");
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = raw.cmd(&["SET", "x", "y"]).await;
    assert!(
        refused
            .error()
            .is_some_and(|error| error.starts_with("OOM"))
    );
    let permit = store
        .acquire(claim(5))
        .await
        .expect("it works without memory");
    assert!(permit.release().await);
    let end = raw.zmembers(HELD).await[0].1;
    eventually("it is refreshed", BOUND, async || {
        raw.zmembers(HELD).await[0].1 > end
    })
    .await;
    assert!(held.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_server_are_failures_of_the_store_with_their_own_words() {
    let server = RedisServer::start();
    let store = store(&server).await;
    drop(store.acquire(claim(5)).await);
    let mut raw = Raw::connect(server.port()).await;
    let mut code = async |setup: &[&str], undo: &[&str]| {
        raw.cmd(setup).await;
        let error = failure(&store).await;
        raw.cmd(undo).await;
        assert!(matches!(error, redis::Error::Redis { .. }), "{error:?}");
        error
            .redis_error()
            .expect("a server has said it")
            .to_string()
    };
    let keep = &["CONFIG", "SET", "min-replicas-to-write", "0"];
    let error = code(&["CONFIG", "SET", "min-replicas-to-write", "3"], keep).await;
    assert!(
        error.contains("NOREPLICAS") || error.contains("NotEnoughReplicas"),
        "{error}"
    );

    let error = code(&["SET", HELD, "not a set"], &["DEL", HELD]).await;
    assert!(error.contains("WRONGTYPE"), "{error}");

    let error = code(
        &["REPLICAOF", "127.0.0.1", "1"],
        &["REPLICAOF", "NO", "ONE"],
    )
    .await;
    assert!(error.to_lowercase().contains("read"), "{error}");
    serves_in_full(&store, BACK).await;
}

/// The commands that the docs of the module list.
const MAY: &str = "+eval +evalsha +time +ping +subscribe +publish +exists +get +incr +set +pexpire +pttl \
                   +zadd +zcard +zrange +zrangebyscore +zrem +zremrangebyscore +zscore";

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_do_what_the_docs_list_can_use_the_store_to_the_full() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let may = format!("ACL SETUSER shop on >secret ~shop:* resetchannels &shop:* {MAY}");
    let set = raw.cmd(&may.split_whitespace().collect::<Vec<_>>()).await;
    assert!(set.error().is_none(), "{set:?}");
    let url = server.url_of("shop:secret");
    let builder = RedisSemaphore::builder().prefix("shop:").lease(LEASE);
    let store = builder.connect(url).await.expect("it connects");

    let heavy = store
        .acquire(claim(2).with_weight(2))
        .await
        .expect("there is room");
    let first = tokio::spawn(store.acquire(claim(2).with_wait(BOUND)));
    let full = claim(2).with_wait(BOUND).with_max_waiting(1);
    eventually("one waits, and no more may", BOUND, async || {
        let probe = store
            .acquire(full.clone().with_wait(Duration::from_millis(1)))
            .await;
        matches!(probe, Err(AcquireError::QueueFull))
    })
    .await;
    assert!(heavy.release().await);
    let first = first
        .await
        .expect("it did not panic")
        .expect("it is granted");
    let mut end = 0.0;
    eventually("it is refreshed twice", BOUND, async || {
        let now = raw.zmembers("shop:{concurrency:a}:held").await[0].1;
        let moved = end > 0.0 && now > end;
        end = if end == 0.0 { now } else { end };
        moved
    })
    .await;
    assert!(first.release().await);
}

#[tokio::test]
async fn wrong_settings_are_named() {
    let setting = |outcome: Result<RedisSemaphore, ConnectError>| match outcome {
        Err(ConnectError::Setting { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let url = "redis://127.0.0.1:1/";
    let builder = RedisSemaphore::builder;
    assert_eq!(
        setting(builder().prefix("a{b").connect(url).await),
        "prefix"
    );
    assert_eq!(
        setting(builder().lease(Duration::ZERO).connect(url).await),
        "lease"
    );
    assert_eq!(
        setting(builder().lease(Duration::MAX).connect(url).await),
        "lease"
    );
    assert_eq!(
        setting(builder().timeout(Duration::ZERO).connect(url).await),
        "timeout"
    );
    assert_eq!(
        setting(builder().timeout(LEASE * 10).connect(url).await),
        "timeout"
    );
    assert_eq!(setting(builder().connect("mysql://here").await), "url");
}

#[tokio::test]
async fn a_password_is_in_no_error_and_in_no_debug_output() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "correct-horse"])
        .await;
    let right = server.url_of(":correct-horse");
    let store = RedisSemaphore::connect(right)
        .await
        .expect("the password is right");
    let wrong = server.url_of(":battery-staple");
    let error = RedisSemaphore::connect(wrong)
        .await
        .expect_err("it is wrong");
    let gone = RedisSemaphore::connect("redis://:battery-staple@127.0.0.1:1/").await;
    let shown = r#"RedisSemaphore { prefix: "semaphore:", lease: 10s, .. }"#;
    assert_eq!(format!("{store:?}"), shown);
    let said = format!("{store:?} {error:?} {error} {gone:?}");
    assert!(
        !said.contains("correct-horse") && !said.contains("battery-staple"),
        "{said}"
    );
}
