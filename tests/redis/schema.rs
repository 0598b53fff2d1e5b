//! What keys mean, by a process that was written by hand: processes of two releases share limits and queues for as long
//! as both keep to this schema.

use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(2);
const HELD: &str = "semaphore:{concurrency:a}:held";
const QUEUE: &str = "semaphore:{concurrency:a}:queue";
const ALIVE: &str = "semaphore:{concurrency:a}:alive";
const TOKEN: &str = "semaphore:{concurrency:a}:token";

/// A process of another release: its permits are `PROCESS.SERIAL.LIMIT.WEIGHT.LEASE`, what is behind that is its own.
struct Other(Raw);

impl Other {
    async fn add(&mut self, key: &str, score: i64, id: &str) {
        self.0.cmd(&["ZADD", key, &score.to_string(), id]).await;
    }

    async fn holds(&mut self, id: &str) {
        let end = self.0.server_time_ms().await + 60_000;
        self.add(HELD, end, id).await;
    }

    async fn waits(&mut self, id: &str) {
        let now = self.0.server_time_ms().await;
        self.add(QUEUE, now * 1_000, id).await;
        self.add(ALIVE, now + 60_000, id).await;
    }

    async fn has(&mut self, key: &str, id: &str) -> bool {
        let members = self.0.zmembers(key).await;
        members.iter().any(|(member, _)| member == id.as_bytes())
    }
}

async fn both() -> (RedisServer, RedisSemaphore, Other) {
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(LEASE);
    let ours = builder.connect(server.url()).await.expect("it connects");
    let other = Other(Raw::connect(server.port()).await);
    (server, ours, other)
}

fn claim() -> Claim {
    Claim::new("a").with_limit(1)
}

async fn waits(store: &RedisSemaphore) -> Result<Permit, AcquireError> {
    store.acquire(claim().with_wait(BOUND)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_another_release_counts_and_keeps_its_place_in_the_queue() {
    let (server, ours, mut other) = both().await;
    other.holds("old.1.1.1.10000.more:of.its own").await;
    let full = ours.acquire(claim()).await;
    assert!(matches!(full, Err(AcquireError::Full { held: 1, .. })));
    other.0.cmd(&["DEL", HELD]).await;

    let first = ours.acquire(claim()).await.expect("there is room");
    let mut messages = Raw::connect(server.port()).await;
    messages.cmd(&["SUBSCRIBE", "semaphore:wake:old"]).await;
    other.waits("old.2.1.1.10000").await;
    let behind = tokio::spawn({
        let ours = ours.clone();
        async move { waits(&ours).await }
    });
    eventually("ours waits too", BOUND, async || {
        other.0.zcard(QUEUE).await == 2
    })
    .await;
    assert!(first.release().await);
    let message = messages.next().await.expect("a message");
    let message = message.array()[2].text();
    let token = other.0.cmd(&["GET", TOKEN]).await;
    let token = token.text();
    assert_eq!(message, format!("2 {token} 1"));
    assert!(other.has(HELD, "old.2.1.1.10000").await);
    assert!(!behind.is_finished());

    other.0.cmd(&["DEL", HELD]).await;
    assert!(behind.await.expect("no panic").is_ok());
}

impl Other {
    /// As a release without flows joins a queue: behind all who wait.
    async fn joins(&mut self, id: &str) -> f64 {
        let now = self.0.server_time_ms().await;
        let scores = self.0.zmembers(QUEUE).await.into_iter();
        let last = scores.map(|(_, score)| score).fold(0.0, f64::max) as i64;
        let arrival = (now * 1_000).max(last + 1);
        self.add(QUEUE, arrival, id).await;
        self.add(ALIVE, now + 60_000, id).await;
        arrival as f64
    }

    /// The order of the queue: of each id its end.
    async fn order(&mut self) -> Vec<String> {
        let members = self.0.zmembers(QUEUE).await.into_iter();
        let name = |id: &[u8]| {
            let id = String::from_utf8_lossy(id).into_owned();
            id.rsplit_once("~_1_")
                .map_or(id.clone(), |(_, flow)| flow.to_owned())
        };
        members.map(|(id, _)| name(&id)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_a_release_without_flows_is_passed_by_nobody_who_comes_later_to_a_fair_queue()
{
    let (_server, ours, mut other) = both().await;
    let held = ours.acquire(claim()).await.expect("there is room");
    let mut waiters = Vec::new();
    let mut wait = async |flow: &'static str, other: &mut Other| {
        let before = other.0.zcard(QUEUE).await;
        let claim = claim().with_flow(flow).with_wait(BOUND);
        waiters.push(tokio::spawn(ours.acquire(claim)));
        eventually("it waits", BOUND, async || {
            other.0.zcard(QUEUE).await == before + 1
        })
        .await;
    };
    for flow in ["ann", "ann", "ann"] {
        wait(flow, &mut other).await;
    }
    other.joins("old.1.1.1.10000").await;
    for flow in ["bob", "ann", "bob"] {
        wait(flow, &mut other).await;
    }
    let expected = ["ann", "ann", "ann", "old.1.1.1.10000", "bob", "ann", "bob"];
    assert_eq!(other.order().await, expected);
    let ids = other.0.zmembers(QUEUE).await;
    let ours_of = |id: &[u8]| !id.starts_with(b"old.");
    assert!(
        ids.iter()
            .filter(|(id, _)| ours_of(id))
            .all(|(id, _)| is_id(id))
    );
    drop(held);
    for _ in 0..3 {
        let permit = waiters.remove(0).await.expect("no panic");
        drop(permit.expect("it is granted"));
    }
    let granted = async || other.has(HELD, "old.1.1.1.10000").await;
    eventually("the other one is next", BOUND, granted).await;
    other.0.cmd(&["DEL", HELD]).await;
    for waiter in waiters {
        drop(waiter.await.expect("no panic").expect("it is granted"));
    }
}

/// Whether an id is `PROCESS.SERIAL.1.1.LEASE`, and perhaps more.
fn is_id(id: &[u8]) -> bool {
    let id = String::from_utf8_lossy(id);
    let parts: Vec<_> = id.splitn(6, '.').collect();
    let is_process = parts[0].bytes().all(|byte| byte.is_ascii_alphanumeric());
    let lease = LEASE.as_millis().to_string();
    is_process && u64::from_str_radix(parts[1], 16).is_ok() && parts[2..5] == ["1", "1", &lease]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_stores_is_what_another_release_reads() {
    let (_server, ours, mut other) = both().await;
    let permit = ours.acquire(claim()).await.expect("there is room");
    let waiter = tokio::spawn({
        let ours = ours.clone();
        async move { waits(&ours).await }
    });
    eventually("it waits", BOUND, async || other.0.zcard(QUEUE).await == 1).await;
    let now = other.0.server_time_ms().await as f64;
    let lease = LEASE.as_millis() as f64;
    for (key, until) in [(HELD, now + lease), (ALIVE, now + lease)] {
        let [(id, end)] = &other.0.zmembers(key).await[..] else {
            panic!("one member of {key}");
        };
        assert!(is_id(id) && (now..=until + lease).contains(end), "{key}");
    }
    let (id, arrival) = other.0.zmembers(QUEUE).await.remove(0);
    let come = (now - 60_000.0) * 1_000.0..=now * 1_000.0 + 1_000.0;
    assert!(is_id(&id) && come.contains(&arrival), "{arrival}");
    let token = other.0.cmd(&["GET", TOKEN]).await;
    let token: u64 = token.text().parse().expect("a number");
    assert_eq!(Some(token), permit.token());
    drop(permit);
    assert!(waiter.await.expect("no panic").is_ok());
}
