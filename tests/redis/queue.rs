//! The queue across processes: its order, its cost, and the faults that it survives.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use testing::{
    fleet,
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::task::JoinSet;
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(3);
/// How long a dead waiter may hold the queue up: a quarter of a lease with the default timeout.
const HEARTBEAT: Duration = Duration::from_millis(750);
const BOUND: Duration = Duration::from_secs(20);
const HELD: &str = "semaphore:{concurrency:a}:held";
const QUEUE: &str = "semaphore:{concurrency:a}:queue";
async fn store(url: String) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    builder.connect(url).await.expect("it connects")
}

/// A store whose claims outlast the moments in which a busy machine runs something else.
async fn patient(url: String) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    builder.connect(url).await.expect("it connects")
}

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

type Waiters = JoinSet<Result<Permit, AcquireError>>;

/// Starts claims that wait, and returns when all are in the queue.
async fn enqueue(store: &RedisSemaphore, raw: &mut Raw, count: usize) -> Waiters {
    let mut waiters = JoinSet::new();
    join(store, raw, &mut waiters, count).await;
    waiters
}

async fn join(store: &RedisSemaphore, raw: &mut Raw, waiters: &mut Waiters, count: usize) {
    let before = raw.zcard(QUEUE).await;
    for _ in 0..count {
        waiters.spawn(store.acquire(claim(1).with_wait(BOUND * 3)));
    }
    queued(raw, before + count).await;
}

async fn queued(raw: &mut Raw, count: usize) {
    eventually("as many are in the queue", BOUND, async || {
        raw.zcard(QUEUE).await == count
    })
    .await;
}

async fn next(waiters: &mut Waiters) -> Permit {
    let granted = tokio::time::timeout(BOUND, waiters.join_next()).await;
    let granted = granted
        .expect("a waiter is granted")
        .expect("a claim waits");
    granted.expect("it did not panic").expect("it is granted")
}

/// Commands that clients sent, of whatever kind, since the last reset.
fn sent(stats: &BTreeMap<String, u64>) -> u64 {
    ["evalsha", "eval"]
        .iter()
        .filter_map(|name| stats.get(*name))
        .sum()
}

/// How many pairs were granted in another order than that of their arrival.
fn inversions(granted: &[usize]) -> usize {
    let pairs = (0..granted.len()).flat_map(|i| (0..i).map(move |j| (j, i)));
    pairs.filter(|&(j, i)| granted[j] > granted[i]).count()
}

/// What `MONITOR` shows of permits, by their ids, each once.
#[derive(Default)]
struct Order {
    /// As the server first saw the claims.
    arrived: Vec<String>,
    /// As it first added their units. A permit's token would not do: a waiter that polls in the moment
    /// in which it is granted draws a second one.
    granted: Vec<String>,
}

impl Order {
    /// Reads until so many permits of the key `a` were granted.
    async fn read(mut monitor: Raw, count: usize) -> Self {
        let mut order = Self::default();
        // A server shows what a script does before the script's own call.
        while order.granted.len() < count || !order.is_complete() {
            let seen = monitor.next().await.expect("the server sends it");
            let words: Vec<&str> = seen.text().split('"').collect();
            match words.get(1) {
                // ... "EVALSHA" "hash" "4" "held" "queue" "alive" "token" ... "id" ..., or several
                Some(&"EVALSHA" | &"EVAL") => {
                    let ids = words.iter().skip(2).filter(|word| is_id(word));
                    ids.for_each(|id| once(&mut order.arrived, id));
                }
                // ... lua] "ZADD" "held" "end" "id", or of a refresh "ZADD" "held" "XX" "CH" ...
                Some(&"ZADD") if words[3] == HELD && is_id(words[7]) => {
                    once(&mut order.granted, words[7]);
                }
                _ => {}
            }
        }
        order
    }

    fn is_complete(&self) -> bool {
        self.granted.iter().all(|id| self.arrived.contains(id))
    }
}

/// A permit without a label has an id of six parts.
fn is_id(word: &str) -> bool {
    word.matches('.').count() == 5
}

fn once(ids: &mut Vec<String>, id: &str) {
    if !ids.iter().any(|known| known == id) {
        ids.push(id.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_contenders_in_four_processes_are_served_in_order_and_without_a_gap() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let mut monitor = Raw::connect(server.port()).await;
    monitor.cmd(&["MONITOR"]).await;
    let order = tokio::spawn(Order::read(monitor, 50));
    let mut fleet: Vec<_> = (0..4)
        .map(|_| fleet::Process::start(&server.url(), Duration::from_secs(10)))
        .collect();
    for process in &mut fleet {
        process.contend("warm", "b", 1, Duration::ZERO);
        process.contended();
    }
    raw.reset_stats().await;

    let start = Instant::now();
    for contender in 0..50 {
        let process = &mut fleet[contender % 4];
        process.contend(&contender.to_string(), "a", 5, Duration::from_millis(100));
    }
    let contended = fleet.iter_mut().flat_map(fleet::Process::contended);
    assert_eq!(contended.count(), 50);
    let took = start.elapsed();
    let sent = sent(&raw.commandstats().await);
    assert!(sent <= 4 * 50, "{sent} commands for 50 permits");
    assert!(
        took < Duration::from_secs(10),
        "it took {took:?} instead of about 1 s"
    );

    let order = tokio::time::timeout(BOUND, order).await;
    let order = order.expect("all were seen").expect("it did not panic");
    let arrival = |id: &String| order.arrived.iter().position(|other| other == id);
    let arrivals: Vec<_> = order.granted.iter().filter_map(arrival).collect();
    assert_eq!(arrivals.len(), 50);
    assert_eq!(inversions(&arrivals), 0, "{arrivals:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_release_wakes_one_of_a_thousand_waiters_and_costs_a_few_commands() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let mut raw = Raw::connect(server.port()).await;
    // A long lease, so that no waiter polls meanwhile; and time for all to join on a busy machine.
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
    raw.reset_stats().await;

    assert!(held.release().await);
    let first = next(&mut waiters).await;
    let stats = raw.commandstats().await;
    // The release; and on a busy machine by now also the first refresh of what it granted.
    assert!((1..=2).contains(&sent(&stats)), "{stats:?}");
    assert_eq!(stats.get("publish"), Some(&1), "{stats:?}");
    assert!(stats.values().sum::<u64>() < 35, "{stats:?}");
    assert_eq!(raw.zcard(QUEUE).await, 999);
    assert!(first.release().await);
    drop(next(&mut waiters).await);
}

/// Waits until the store is subscribed to its channel. A waiter that was there before polls once
/// more then.
async fn subscribed(store: &RedisSemaphore, raw: &mut Raw) {
    let held = store.acquire(claim(1)).await.expect("there is room");
    let waits = tokio::spawn(store.acquire(claim(1).with_wait(BOUND)));
    eventually("the store is subscribed", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", "semaphore:wake:*"]).await;
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
async fn a_cancelled_head_lets_the_next_waiter_in_at_once() {
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
    // Sooner than the cancelled claim's release is retried, which would let it in too.
    let granted = tokio::time::timeout(BOUND / 4, light)
        .await
        .expect("without a poll of its own");
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
    process.contend("head", "a", 1, Duration::ZERO);
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
async fn a_killed_holders_permit_goes_to_the_head_when_its_lease_ends() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = patient(server.url()).await;
    let mut process = fleet::Process::start(&server.url(), LEASE);
    process.acquire("p", "a", 1).expect("there is room");
    let mut waiters = enqueue(&store, &mut raw, 3).await;
    process.kill();
    let end = raw.zmembers(HELD).await[0].1 as i64;
    let permit = next(&mut waiters).await;
    let late = raw.server_time_ms().await - end;
    assert!(
        (0..2_500).contains(&late),
        "granted {late} ms after the lease's end"
    );
    drop(permit);
    drop(next(&mut waiters).await);
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

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_granted_although_the_connections_are_killed_again_and_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let mut raw = Raw::connect(server.port()).await;
    let store = patient(server.url()).await;
    let subscriber = patient(proxy.url()).await;
    let held = store.acquire(claim(1)).await.expect("there is room");
    let mut waiters = enqueue(&subscriber, &mut raw, 8).await;
    let killer = tokio::spawn(async move {
        loop {
            let killed = raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            assert!(killed.error().is_none(), "{killed:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    drop(held);
    for _ in 0..8 {
        drop(next(&mut waiters).await);
    }
    assert!(!killer.is_finished(), "the killer has ended");
    killer.abort();
    proxy.kill(End::Reset);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_a_store_without_an_address_poll() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let client = redis::Client::open(server.url()).expect("it is a URL");
    let connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("it connects");
    let store = RedisSemaphore::with_connection(connection).expect("the defaults are right");
    let held = store.acquire(claim(1)).await.expect("there is room");
    let mut waiters = enqueue(&store, &mut raw, 3).await;
    drop(held);
    for _ in 0..3 {
        drop(next(&mut waiters).await);
    }
    assert_eq!(raw.cmd(&["PUBSUB", "CHANNELS"]).await.array().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_has_as_many_waiters_as_its_store_may() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let builder = RedisSemaphore::builder().max_waiting_total(2);
    let store = builder.connect(server.url()).await.expect("it connects");
    let held = store.acquire(claim(1)).await.expect("there is room");
    let mut waiters = enqueue(&store, &mut raw, 2).await;
    let refused = store
        .acquire(claim(1).with_wait(BOUND))
        .await
        .expect_err("two wait");
    assert!(matches!(refused, AcquireError::Overloaded), "{refused:?}");
    drop(held);
    drop(next(&mut waiters).await);
    drop(next(&mut waiters).await);
}

/// Its position in the queue is free for the next one as soon as it has gone, not a round trip later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_gives_up_and_comes_again_finds_room_in_the_queue() {
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
