//! Faults that only a store in Redis meets: other processes, lost messages, outages, forged ids.

mod crowded;
mod notified;
mod stored;

use super::{BOUND, Store, Waiter, claim, queued, until_notified};
use std::{sync::Arc, time::Duration};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, semaphore::PermitInfo};

const LEASE: Duration = Duration::from_secs(3);
/// A lease longer than a test. Nothing is refreshed, so only messages can notify holders. A waiter polls every 5 s.
const LONG: Duration = Duration::from_secs(3_600);
const HELD: &str = "semaphore:2:{concurrency:a}:held";
const QUEUE: &str = "semaphore:2:{concurrency:a}:queue";
const ALIVE: &str = "semaphore:2:{concurrency:a}:alive";

/// A store that the server sees as a separate process.
async fn store(url: &str, lease: Duration) -> Store {
    let builder = RedisSemaphore::builder().lease(lease).timeout(lease / 3);
    Arc::new(builder.connect(url).await.expect("it connects"))
}

/// A server and this number of processes.
async fn processes<const N: usize>(lease: Duration) -> (RedisServer, Raw, [Store; N]) {
    let server = RedisServer::start();
    let raw = Raw::connect(server.port()).await;
    let mut stores = Vec::new();
    for _ in 0..N {
        stores.push(store(&server.url(), lease).await);
    }
    (server, raw, stores.try_into().ok().expect("N stores"))
}

/// A claim for units of a limit of nine.
fn units(weight: u32) -> Claim {
    claim("a", 9).with_weight(weight)
}

async fn granted(store: &Store, weight: u32) -> Permit {
    store.acquire(units(weight)).await.expect("there is room")
}

async fn revoke(store: &Store, id: &str) -> bool {
    super::revoke(store, "a", id).await
}

/// A claim that waits behind `before` others, and the waiter that usage shows for it.
async fn waits(store: &Store, weight: u32, before: usize) -> (Waiter, PermitInfo) {
    queued(store, units(weight).with_wait(LONG), before).await
}

/// Waits until the process of this permit or waiter is subscribed to its channel.
async fn until_subscribed(raw: &mut Raw, info: &PermitInfo) {
    let channel = format!("semaphore:2:wake:{}", info.process.id);
    eventually("it listens", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", &channel]).await;
        channels.first().is_some()
    })
    .await;
}

/// Asserts that the permit is lost for good: two seconds later it has not been acquired again, although the key has
/// room.
async fn assert_stays_revoked(permit: &Permit, raw: &mut Raw) {
    until_notified(permit).await;
    eventually("the loss is permanent", BOUND, async || {
        permit.weight() == 0
    })
    .await;
    let end = raw.server_time_ms().await + 2_000;
    while raw.server_time_ms().await < end {
        assert!(permit.is_lost());
        assert_eq!(raw.zcard(HELD).await, 0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!permit.release().await);
}
