//! What only a store in Redis has to bear: other processes, lost messages, outages, forged ids.

mod forged;
mod keys;
mod lists;
mod lost_messages;
mod mass;
mod moving;
mod told;

use crate::holders::BOUND;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{
    Claim, Operate, Permit, Policy, RedisSemaphore, Semaphore,
    semaphore::{PermitInfo, Usage},
};

const LEASE: Duration = Duration::from_secs(3);
const HELD: &str = "semaphore:{concurrency:a}:held";
const ALIVE: &str = "semaphore:{concurrency:a}:alive";

/// A process of its own, as the server sees it.
async fn store(url: &str, lease: Duration) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(lease).timeout(lease / 3);
    builder.connect(url).await.expect("it connects")
}

fn claim(weight: u32) -> Claim {
    Claim::new("a").with_limit(9).with_weight(weight)
}

async fn granted(store: &RedisSemaphore, weight: u32) -> Permit {
    store.acquire(claim(weight)).await.expect("there is room")
}

async fn usage(store: &RedisSemaphore) -> Usage {
    let usage = store.usage(&Policy::DEFAULT, &"a".into()).await;
    usage.expect("the store answers")
}

/// What is held by the first permit that is shown.
async fn first(store: &RedisSemaphore) -> PermitInfo {
    usage(store).await.held.remove(0)
}

async fn revoke(store: &RedisSemaphore, id: &str) -> bool {
    let revoked = store.revoke(&Policy::DEFAULT, &"a".into(), id).await;
    revoked.expect("the store answers")
}

/// The other process listens to revocations.
async fn listens(raw: &mut Raw, process: &str) {
    let channel = format!("semaphore:wake:{process}");
    eventually("it listens", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", &channel]).await;
        channels.first().is_some()
    })
    .await;
}

/// The permit is lost, is not acquired again for some refreshes although there is room, and never will be.
async fn stays_revoked(permit: &Permit, raw: &mut Raw) {
    eventually("it is for ever", BOUND, async || permit.weight() == 0).await;
    let end = raw.server_time_ms().await + 2_000;
    while raw.server_time_ms().await < end {
        assert!(permit.is_lost());
        assert_eq!(raw.zcard(HELD).await, 0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!permit.release().await);
}

async fn started() -> (RedisServer, Raw) {
    let server = RedisServer::start();
    let raw = Raw::connect(server.port()).await;
    (server, raw)
}
