//! A key that is paused for the whole fleet.
//!
//! Promises: P17.

use crate::queue::queued;
use std::time::{Duration, Instant};
use testing::{fleet::Process, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::task::JoinHandle;
use tower_semaphore::{
    AcquireError, Claim, Operate, Permit, Policy, RedisSemaphore, Semaphore,
    redis::WhenUnavailable, semaphore::Key,
};

const LEASE: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(4);
const QUEUE: &str = "semaphore:2:{concurrency:a}:queue";
const TOKEN: &str = "semaphore:2:{concurrency:a}:token";

async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    builder.connect(server.url()).await.expect("it connects")
}

fn claim() -> Claim {
    Claim::new("a").with_limit(2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_the_fleet_at_once_and_ends_in_order_although_its_process_is_killed() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let mut fleet: Vec<_> = (0..4)
        .map(|_| Process::start(&server.url(), LEASE))
        .collect();
    fleet[0].acquire("p", "a", 2).expect("there is room");

    let paused_at = raw.server_time_ms().await;
    fleet[0].pause("p", PAUSE);
    let token = raw.cmd(&["GET", TOKEN]).await;
    fleet[0].kill();
    let names: Vec<_> = (0..9).map(|at| format!("w{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        fleet[1 + at % 3].contend(None, name, "a", 1);
        // The pause is an entry of the queue too.
        queued(&mut raw, at + 2).await;
    }
    assert_eq!(fleet[1].acquire("q", "a", 2), None);
    // Until the pause has ended by the server's clock, the token does not grow.
    loop {
        // Read the token first, because the pause may end between the two commands.
        let last_token = raw.cmd(&["GET", TOKEN]).await;
        if raw.server_time_ms().await >= paused_at + PAUSE.as_millis() as i64 {
            break;
        }
        assert_eq!(last_token, token, "granted during the pause");
    }

    eventually("the pause ends", BOUND, async || {
        raw.cmd(&["GET", TOKEN]).await != token
    })
    .await;
    let late = raw.server_time_ms().await - paused_at - PAUSE.as_millis() as i64;
    println!("the first grant after {late} ms");
    assert!(late < 2_000, "the first grant after {late} ms");
    let mut granted: Vec<_> = fleet[1..].iter_mut().flat_map(Process::contended).collect();
    granted.sort_by_key(|(_, token)| *token);
    let granted: Vec<_> = granted.into_iter().map(|(name, _)| name).collect();
    assert_eq!(granted, names);
    assert_eq!(
        raw.keys("*:queue").await.len() + raw.keys("*:alive").await.len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pause_of_an_unused_key_leaves_nothing() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = store(&server).await;
    let (policy, key) = (Policy::DEFAULT, "a".into());
    let time = Duration::from_millis(500);
    store
        .pause(&policy, &key, time, "")
        .await
        .expect("it is paused");
    assert_eq!(raw.zcard(QUEUE).await, 1);
    eventually("nothing is left", BOUND, async || {
        raw.keys("*{concurrency:a}*").await.is_empty()
    })
    .await;
}

/// During an outage, only the process that paused the key knows of the pause.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_paused_observes_the_pause_without_its_server() {
    for policy in [WhenUnavailable::Admit, WhenUnavailable::Share] {
        let mut server = RedisServer::start();
        let builder = RedisSemaphore::builder()
            .lease(LEASE)
            .when_unavailable(policy);
        let store = builder.connect(server.url()).await.expect("it connects");
        let permit = store.acquire(claim()).await.expect("there is room");
        let paused = permit.pause("concurrency", Duration::from_secs(60), "");
        paused.await.expect("it is paused");
        server.kill();
        let start = Instant::now();
        let refused = store.acquire(claim()).await.expect_err("it is paused");
        assert!(
            matches!(refused, AcquireError::Paused { .. }),
            "{refused:?}"
        );
        let other = store.acquire(Claim::new("b").with_limit(2)).await;
        assert!(other.is_ok_and(|permit| permit.is_degraded()), "{policy:?}");
        let resumed = store.resume(&Policy::DEFAULT, &Key::from("a")).await;
        resumed.expect_err("no server has ended the pause");
        let refused = store.acquire(claim()).await.expect_err("it is paused");
        assert!(
            matches!(refused, AcquireError::Paused { .. }),
            "{refused:?}"
        );
        assert!(start.elapsed() < BOUND);
    }
}

/// The call fails because the script may not publish to the next waiters. The script has already ended the pause.
#[tokio::test(flavor = "multi_thread")]
async fn a_resume_that_fails_midway_ends_the_pause_of_its_process() {
    let mut server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let builder = RedisSemaphore::builder()
        .lease(LEASE)
        .timeout(LEASE / 3)
        .when_unavailable(WhenUnavailable::Admit);
    let store = builder.connect(server.url()).await.expect("it connects");
    let (policy, key) = (Policy::DEFAULT, Key::from("a"));
    let paused = store.pause(&policy, &key, BOUND * 3, "");
    paused.await.expect("it is paused");
    let waiter = tokio::spawn(store.acquire(claim().with_wait(BOUND * 4)));
    // The pause and the waiter.
    queued(&mut raw, 2).await;
    let rights = ["ACL", "SETUSER", "default", "resetchannels"];
    assert_eq!(raw.cmd(&rights).await.text(), "OK");
    let resumed = store.resume(&policy, &key).await;
    resumed.expect_err("it may not publish");
    server.kill();
    let admitted = store.acquire(claim()).await;
    assert!(
        admitted.as_ref().is_ok_and(Permit::is_degraded),
        "{admitted:?}"
    );
    waiter.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_lasts_no_longer_although_the_clock_is_set_back() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = store(&server).await;
    let (policy, key) = (Policy::DEFAULT, "a".into());
    let paused = store.pause(&policy, &key, Duration::from_secs(1), "").await;
    paused.expect("it is paused");
    // Simulate that the clock was an hour ahead when the key was paused.
    let id = raw.zmembers(QUEUE).await.remove(0).0;
    let hour_ahead = raw.server_time_ms().await + 3_600_000;
    let alive = b"semaphore:2:{concurrency:a}:alive".to_vec();
    raw.cmd(&[
        b"ZADD".to_vec(),
        alive.clone(),
        hour_ahead.to_string().into_bytes(),
        id,
    ])
    .await;
    for key in [alive, QUEUE.into()] {
        raw.cmd(&[b"PEXPIRE".to_vec(), key, b"3600000".to_vec()])
            .await;
    }
    let start = Instant::now();
    let granted = store.acquire(claim().with_wait(BOUND)).await;
    assert!(granted.is_ok(), "{granted:?}");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

/// A permit of a key with one unit, and claims that wait for it. Their heartbeats are five seconds apart, so an earlier
/// grant comes from a message.
async fn held_before(
    server: &RedisServer,
    raw: &mut Raw,
    waiters: usize,
) -> (Permit, Vec<JoinHandle<Result<Permit, AcquireError>>>) {
    let builder = RedisSemaphore::builder().lease(LEASE * 20);
    let store = builder.connect(server.url()).await.expect("it connects");
    let claim = Claim::new("a").with_limit(1).with_wait(BOUND);
    let held = store.acquire(claim.clone()).await.expect("there is room");
    let mut waiting = Vec::new();
    for count in 1..=waiters {
        waiting.push(tokio::spawn(store.acquire(claim.clone())));
        queued(raw, count).await;
    }
    (held, waiting)
}

/// Releases the permit, and asserts that the waiter is granted before its next heartbeat.
async fn assert_granted_soon_after(held: Permit, waiter: JoinHandle<Result<Permit, AcquireError>>) {
    assert!(held.release().await);
    let start = Instant::now();
    let granted = waiter.await.expect("no panic");
    assert!(granted.is_ok(), "{granted:?}");
    assert!(start.elapsed() < LEASE, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_before_a_short_pause_is_granted_soon_after_it() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let (held, mut waiters) = held_before(&server, &mut raw, 1).await;
    let paused = held.pause("concurrency", Duration::from_millis(300), "");
    paused.await.expect("it is paused");
    assert_granted_soon_after(held, waiters.remove(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_predecessor_leaves_during_a_pause_is_granted_soon_after_it() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let (held, mut waiters) = held_before(&server, &mut raw, 2).await;
    let paused = held.pause("concurrency", Duration::from_secs(1), "");
    paused.await.expect("it is paused");
    waiters.remove(0).abort();
    // The pause and the second waiter.
    queued(&mut raw, 2).await;
    assert_granted_soon_after(held, waiters.remove(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_waiters_expire_soon_after_a_long_pause_was_ended() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = store(&server).await;
    let held = store.acquire(claim().with_weight(2)).await;
    let held = held.expect("there is room");
    let waiter = tokio::spawn(store.acquire(claim().with_wait(PAUSE * 2_000)));
    queued(&mut raw, 1).await;
    let (policy, key) = (Policy::DEFAULT, "a".into());
    let paused = store.pause(&policy, &key, PAUSE * 1_000, "").await;
    paused.expect("it is paused");
    assert!(store.resume(&policy, &key).await.expect("it is resumed"));
    for set in ["queue", "alive"] {
        let key = format!("semaphore:2:{{concurrency:a}}:{set}");
        let ttl = raw.cmd(&["PTTL", &key]).await.int();
        // The scripts set a TTL of eight leases.
        let most = LEASE.as_millis() as i64 * 8;
        assert!((1..=most).contains(&ttl), "{set}: {ttl} ms");
    }
    assert!(held.release().await);
    assert!(waiter.await.expect("no panic").is_ok());
}
