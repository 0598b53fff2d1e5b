//! The queue across processes: its order, its cost, and the faults that it tolerates.
//!
//! Promises: P12, P13, P14, P15.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use testing::{
    fleet,
    ids::id,
    proxy::{Proxy, Seen},
    redis::RedisServer,
    resp::Raw,
    rig::Rig,
    wait::{eventually, one_round_passes},
};
use tokio::task::JoinSet;
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(3);
/// The longest time for which a dead waiter blocks the queue: a quarter of a lease under the default timeout.
const HEARTBEAT: Duration = Duration::from_millis(750);
const BOUND: Duration = Duration::from_secs(20);
const QUEUE: &str = "semaphore:2:{concurrency:a}:queue";
const ALIVE: &str = "semaphore:2:{concurrency:a}:alive";

async fn store(url: String) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    builder.connect(url).await.expect("it connects")
}

/// A store with the longest possible timeout, which tolerates a busy machine.
async fn patient(url: String) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    builder.connect(url).await.expect("it connects")
}

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

type Waiters = JoinSet<Result<Permit, AcquireError>>;

/// Starts waiting claims, and returns when all of them are in the queue.
async fn enqueue(store: &RedisSemaphore, raw: &mut Raw, count: usize) -> Waiters {
    let mut waiters = JoinSet::new();
    join(store, raw, &mut waiters, count).await;
    waiters
}

/// Starts more waiting claims, and returns when all of them are in the queue.
async fn join(store: &RedisSemaphore, raw: &mut Raw, waiters: &mut Waiters, count: usize) {
    let before = raw.zcard(QUEUE).await;
    for _ in 0..count {
        let claim = claim(1).with_wait(BOUND * 3).with_max_waiting(10_000);
        waiters.spawn(store.acquire(claim));
    }
    queued(raw, before + count).await;
}

/// Waits until the queue of `a` has this length.
pub(crate) async fn queued(raw: &mut Raw, count: usize) {
    eventually("the queue has this length", BOUND, async || {
        raw.zcard(QUEUE).await == count
    })
    .await;
}

/// Waits for the next grant.
async fn next(waiters: &mut Waiters) -> Permit {
    let granted = tokio::time::timeout(BOUND, waiters.join_next()).await;
    let granted = granted
        .expect("a waiter is granted")
        .expect("a claim waits");
    granted.expect("it did not panic").expect("it is granted")
}

/// The number of script calls that clients have sent since the last reset.
fn sent(stats: &BTreeMap<String, u64>) -> u64 {
    ["evalsha", "eval"]
        .iter()
        .filter_map(|name| stats.get(*name))
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_release_wakes_one_of_a_thousand_waiters_and_costs_a_few_commands() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let mut raw = Raw::connect(server.port()).await;
    // With this long lease a waiter polls only every 5 s, and all have time to join even on a busy machine.
    let builder = RedisSemaphore::builder()
        .lease(Duration::from_secs(600))
        .timeout(BOUND / 4);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    drop(store.acquire(claim(1)).await);
    let held = store
        .acquire(claim(1).with_wait(BOUND))
        .await
        .expect("there is room soon");
    let mut waiters = enqueue(&store, &mut raw, 1).await;
    // A waiter polls once more when its store has subscribed.
    eventually(
        "the store has subscribed and the waiter has polled",
        BOUND,
        async || {
            sent(&raw.commandstats().await) >= 5
                && raw.cmd(&["PUBSUB", "CHANNELS"]).await.array().len() == 1
        },
    )
    .await;
    join(&store, &mut raw, &mut waiters, 999).await;

    let mut held = Some(held);
    // An announcement of the process or a poll may be sent during a round.
    one_round_passes("one release costs a few commands", 3, async || {
        let left = raw.zcard(QUEUE).await - 1;
        raw.reset_stats().await;
        let last = held.take().expect("a permit");
        assert!(last.release().await);
        held = Some(next(&mut waiters).await);
        let stats = raw.commandstats().await;
        assert_eq!(raw.zcard(QUEUE).await, left);
        // One call is the release. On a busy machine the first refresh of the new permit may have been sent as well.
        let is_cheap = (1..=2).contains(&sent(&stats)) && stats.values().sum::<u64>() < 35;
        let is_one_woken = stats.get("publish") == Some(&1);
        (is_cheap && is_one_woken).then_some(()).ok_or(stats)
    })
    .await;
    assert!(held.expect("a permit").release().await);
    drop(next(&mut waiters).await);
}

/// Waits until the store has subscribed to its channel, because a new subscription makes waiters poll once more.
async fn subscribed(store: &RedisSemaphore, raw: &mut Raw) {
    let held = store.acquire(claim(1)).await.expect("there is room");
    let waits = tokio::spawn(store.acquire(claim(1).with_wait(BOUND)));
    eventually("the store is subscribed", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", "semaphore:2:wake:*"]).await;
        !channels.array().is_empty()
    })
    .await;
    drop(held);
    let permit = waits
        .await
        .expect("it did not panic")
        .expect("it is granted");
    assert!(permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_waiter_behind_a_cancelled_head_is_granted_at_once() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(600));
    let store = builder.connect(server.url()).await.expect("it connects");
    subscribed(&store, &mut raw).await;
    let _held = store
        .acquire(claim(3).with_weight(2))
        .await
        .expect("there is room");
    let heavy = tokio::spawn(store.acquire(claim(3).with_weight(2).with_wait(BOUND)));
    queued(&mut raw, 1).await;
    let light = tokio::spawn(store.acquire(claim(3).with_wait(BOUND)));
    queued(&mut raw, 2).await;
    heavy.abort();
    // The bound is shorter than the 5 s until the light claim polls, and than the time to the first retry of the
    // cancelled claim's release. Both would also grant the light claim.
    let granted = tokio::time::timeout(BOUND / 5, light)
        .await
        .expect("granted without a poll");
    drop(granted.expect("it did not panic").expect("it is granted"));
    assert_eq!(
        raw.keys("*:queue").await.len() + raw.keys("*:alive").await.len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_head_holds_the_queue_up_for_a_quarter_of_a_lease_at_most() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = store(server.url()).await;
    let held = store.acquire(claim(1)).await.expect("there is room");
    let mut process = fleet::Process::start(&server.url(), LEASE);
    process.contend(None, "head", "a", 1);
    queued(&mut raw, 1).await;
    let mut waiters = enqueue(&store, &mut raw, 1).await;
    process.kill();
    let start = Instant::now();
    assert!(held.release().await);
    drop(next(&mut waiters).await);
    assert!(
        start.elapsed() < HEARTBEAT + Duration::from_secs(2),
        "it took {:?}",
        start.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_granted_although_every_message_is_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let mut raw = Raw::connect(server.port()).await;
    let store = patient(proxy.url()).await;
    let held = store.acquire(claim(1)).await.expect("there is room");
    let mut waiters = enqueue(&store, &mut raw, 5).await;
    drop(held);
    for _ in 0..5 {
        drop(next(&mut waiters).await);
    }
}

/// A cancelled claim's place in the queue is free as soon as it is dropped, not a round trip later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_gives_up_and_returns_finds_room_in_the_queue() {
    let server = RedisServer::start();
    let store = patient(server.url()).await;
    let mut raw = Raw::connect(server.port()).await;
    let held = store.acquire(claim(1)).await.expect("there is room");
    let wait = || store.acquire(claim(1).with_wait(BOUND).with_max_waiting(1));
    let mut waits = tokio::spawn(wait());
    for _ in 0..10 {
        eventually("it waits", BOUND, async || raw.zcard(QUEUE).await == 1).await;
        waits.abort();
        let _ = (&mut waits).await;
        waits = tokio::spawn(wait());
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waits.is_finished(), "it waits too");
    drop(held);
    assert!(waits.await.expect("no panic").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_has_at_most_max_waiting_total_waiters_and_sends_nothing_for_others() {
    let rig = Rig::new(RedisSemaphore::builder().max_waiting_total(2)).await;
    let Rig { proxy, store, .. } = &rig;
    let mut raw = Raw::connect(rig.server.port()).await;
    let held = store.acquire(claim(1)).await.expect("there is room");
    let mut waiters = enqueue(store, &mut raw, 2).await;
    proxy.clear_log();
    for _ in 0..1_000 {
        let refused = Claim::new("crowded").with_limit(1).with_wait(BOUND);
        let refused = store.acquire(refused).await.expect_err("two wait");
        assert!(matches!(refused, AcquireError::Overloaded), "{refused:?}");
    }
    // A command for a refused claim would be sent before this one or in the same call.
    let other = store.acquire(Claim::new("other").with_limit(1)).await;
    assert!(other.expect("there is room").release().await);
    let mentions = |key: &str| format!("{:?}", text(&proxy.log())).matches(key).count();
    // In the claim and in the release.
    assert!(mentions("other") >= 2, "the log is of another server");
    assert_eq!(
        mentions("crowded"),
        0,
        "commands for claims that were refused"
    );
    drop(held);
    drop(next(&mut waiters).await);
    drop(next(&mut waiters).await);
}

fn text(log: &[Seen]) -> Vec<String> {
    let args = log.iter().flat_map(|seen| &seen.args);
    args.map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect()
}

/// The key `alive` has more ids without a queue entry than one call removes, as after scripts that were aborted midway.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_is_removed_from_a_full_queue_although_stray_ids_come_before_it() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = patient(server.url()).await;
    let _held = store.acquire(claim(1)).await.expect("there is room");
    let _waiter = enqueue(&store, &mut raw, 1).await;
    // One call removes at most 100.
    for number in 0..200 {
        let id = id("aaaa", number, [1, 1, 60_000]);
        raw.cmd(&["ZADD", ALIVE, "1", &id]).await;
    }
    let dead = &*id("aaaa", 1_000, [1, 1, 60_000]);
    raw.cmd(&["ZADD", ALIVE, "2", dead]).await;
    raw.cmd(&["ZADD", QUEUE, "4000000000000000", dead]).await;
    eventually("a claim takes its place", BOUND, async || {
        let claim = claim(1).with_max_waiting(2);
        let outcome = store.acquire(claim.with_wait(HEARTBEAT / 10)).await;
        matches!(outcome, Err(AcquireError::TimedOut { .. }))
    })
    .await;
}
