//! The meaning of the keys in schema 2, shown by a process that the test plays with literal ids and scores. Also the
//! coexistence with a process of schema 1, whose keys have other names. The docs of `src/redis/mod.rs` describe
//! the keys and the parts of an id.
//!
//! Promises: P1, P7.

use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(2);
const HELD: &str = "semaphore:2:{concurrency:a}:held";
const QUEUE: &str = "semaphore:2:{concurrency:a}:queue";
const ALIVE: &str = "semaphore:2:{concurrency:a}:alive";
const TOKEN: &str = "semaphore:2:{concurrency:a}:token";

/// A process that the test plays over a plain connection.
struct Other(Raw);

impl Other {
    async fn add(&mut self, key: &str, score: i64, id: &str) {
        self.0.cmd(&["ZADD", key, &score.to_string(), id]).await;
    }

    /// Holds a unit of a key for a minute.
    async fn holds(&mut self, key: &str, id: &str) {
        let end = self.0.server_time_ms().await + 60_000;
        self.add(key, end, id).await;
    }

    /// Joins a queue, and counts as alive for a minute.
    async fn waits(&mut self, [queue, alive]: [&str; 2], id: &str) {
        let now = self.0.server_time_ms().await;
        self.add(queue, now * 1_000, id).await;
        self.add(alive, now + 60_000, id).await;
    }

    async fn has(&mut self, key: &str, id: &str) -> bool {
        let members = self.0.zmembers(key).await;
        members.iter().any(|(member, _)| member == id.as_bytes())
    }
}

/// A server, a store, and another process, which the test plays.
async fn fixture() -> (RedisServer, RedisSemaphore, Other) {
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(LEASE);
    let ours = builder.connect(server.url()).await.expect("it connects");
    let other = Other(Raw::connect(server.port()).await);
    (server, ours, other)
}

fn claim() -> Claim {
    Claim::new("a").with_limit(1)
}

async fn acquire_waiting(store: &RedisSemaphore) -> Result<Permit, AcquireError> {
    store.acquire(claim().with_wait(BOUND)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_that_keeps_to_the_schema_counts_and_keeps_its_place_in_the_queue() {
    let (server, ours, mut other) = fixture().await;
    other
        .holds(HELD, "other.1.0.0.1.1.7ps.0.1.ann.GET~20~2F")
        .await;
    let full = ours.acquire(claim()).await;
    assert!(matches!(full, Err(AcquireError::Full { held: 1, .. })));
    other.0.cmd(&["DEL", HELD]).await;

    let first = ours.acquire(claim()).await.expect("there is room");
    let mut messages = Raw::connect(server.port()).await;
    messages.cmd(&["SUBSCRIBE", "semaphore:2:wake:other"]).await;
    let id = "other.2.0.3.1.1.7ps.mwrq6ebf...";
    other.waits([QUEUE, ALIVE], id).await;
    let behind = tokio::spawn({
        let ours = ours.clone();
        async move { acquire_waiting(&ours).await }
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
    // PERMIT, LEASE and GENERATION of the id, the token, and the number of held units.
    assert_eq!(message, format!("2.0.3 {token} 1"));
    assert!(other.has(HELD, id).await);
    assert!(!behind.is_finished());

    other.0.cmd(&["DEL", HELD]).await;
    assert!(behind.await.expect("no panic").is_ok());
}

/// True if an id is `PROCESS.PERMIT.0.0.1.1.1jk.SINCE...`, where `1jk` is the lease of 2,000 ms.
fn is_id(id: &[u8]) -> bool {
    let id = String::from_utf8_lossy(id);
    let parts: Vec<_> = id.split('.').collect();
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    parts.len() == 11
        && is_word(parts[0])
        && u64::from_str_radix(parts[1], 36).is_ok()
        && parts[2..7] == ["0", "0", "1", "1", "1jk"]
        && u64::from_str_radix(parts[7], 36).is_ok()
        && parts[8..] == ["", "", ""]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_writes_what_the_schema_describes() {
    let (_server, ours, mut other) = fixture().await;
    let permit = ours.acquire(claim()).await.expect("there is room");
    let waiter = tokio::spawn({
        let ours = ours.clone();
        async move { acquire_waiting(&ours).await }
    });
    eventually("it waits", BOUND, async || other.0.zcard(QUEUE).await == 1).await;
    let now = other.0.server_time_ms().await as f64;
    let lease = LEASE.as_millis() as f64;
    for key in [HELD, ALIVE] {
        let [(id, end)] = &other.0.zmembers(key).await[..] else {
            panic!("one member of {key}");
        };
        assert!(
            is_id(id) && (now..=now + 2.0 * lease).contains(end),
            "{key}"
        );
    }
    let (id, arrival) = other.0.zmembers(QUEUE).await.remove(0);
    // Microseconds. The claim has joined within the last minute.
    let arrivals = (now - 60_000.0) * 1_000.0..=now * 1_000.0 + 1_000.0;
    assert!(is_id(&id) && arrivals.contains(&arrival), "{arrival}");
    let token = other.0.cmd(&["GET", TOKEN]).await;
    let token: u64 = token.text().parse().expect("a number");
    assert_eq!(Some(token), permit.token());
    drop(permit);
    assert!(waiter.await.expect("no panic").is_ok());
}

/// Redis keeps a small set in one piece while no member is longer than 64 bytes.
#[tokio::test(flavor = "multi_thread")]
async fn small_sets_of_ids_are_stored_in_one_piece() {
    let (_server, ours, mut other) = fixture().await;
    let _permit = ours.acquire(claim()).await.expect("there is room");
    let waiter = tokio::spawn({
        let ours = ours.clone();
        async move { acquire_waiting(&ours).await }
    });
    eventually("it waits", BOUND, async || other.0.zcard(QUEUE).await == 1).await;
    // The last unit under the longest id without flow and label. Its numbers are those of a process that has run for
    // years.
    let longest = "lYGhA16ahyf.zzzzzzzzz.zzz.zzz.1z141z3.rs.1ffuo0.zzzzzzzz...";
    let last = format!("{longest}:1000");
    assert_eq!(last.len(), 64);
    for key in [HELD, QUEUE, ALIVE] {
        other.add(key, 8_000_000_000_000_000, &last).await;
        let encoding = other.0.cmd(&["OBJECT", "ENCODING", key]).await;
        let is_small = ["listpack", "ziplist"].contains(&encoding.text());
        assert!(
            is_small && other.0.zcard(key).await == 2,
            "{key}: {encoding:?}"
        );
    }
    other.add(HELD, 1, &format!("{last}0")).await;
    let encoding = other.0.cmd(&["OBJECT", "ENCODING", HELD]).await;
    assert_eq!(encoding.text(), "skiplist");
    waiter.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_of_schema_1_neither_counts_nor_is_touched() {
    let (_server, ours, mut other) = fixture().await;
    let [held, queue, alive] =
        ["held", "queue", "alive"].map(|set| format!("semaphore:{{concurrency:a}}:{set}"));
    other.holds(&held, "0123456789abcdef.1.1.1.10000").await;
    other
        .waits([&queue, &alive], "0123456789abcdef.2.1.1.10000")
        .await;
    let old: [&[&str]; 3] = [
        &["SET", "semaphore:{concurrency:a}:token", "7"],
        &["SET", "semaphore:clock", "9000000000000000"],
        &[
            "HSET",
            "semaphore:limits{semaphore:processes}",
            "concurrency:a",
            "0 1 ",
        ],
    ];
    for command in old {
        other.0.cmd(command).await;
    }
    let before = dump(&mut other.0).await;
    assert_eq!(before.len(), 6);
    let permit = ours.acquire(claim()).await.expect("it does not count");
    let behind = tokio::spawn({
        let ours = ours.clone();
        async move { acquire_waiting(&ours).await }
    });
    eventually("ours waits", BOUND, async || {
        other.0.zcard(QUEUE).await == 1
    })
    .await;
    assert!(permit.release().await);
    let next = behind.await.expect("no panic").expect("ours alone waits");
    assert!(next.release().await);
    assert_eq!(dump(&mut other.0).await, before);
}

/// All keys of schema 1 with their serialised values.
async fn dump(raw: &mut Raw) -> Vec<(Vec<u8>, String)> {
    let mut all = Vec::new();
    for key in raw.keys("semaphore:[^2]*").await {
        let dump = raw.cmd(&[b"DUMP", &key[..]]).await;
        all.push((key, format!("{dump:?}")));
    }
    all.sort();
    all
}
