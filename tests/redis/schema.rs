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
