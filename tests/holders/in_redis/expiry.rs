//! How long a server keeps a queue on a key of which permits were revoked.

use super::{LEASE, claim, first, granted, revoke, started, store, usage};
use crate::BOUND;
use std::time::{Duration, Instant};
use testing::{resp::Raw, wait::eventually};
use tower_semaphore::{RedisSemaphore, Semaphore};

const QUEUE: &str = "semaphore:{concurrency:a}:queue";
/// Longer than any test.
const WAIT: Duration = Duration::from_secs(600);

async fn queued(store: &RedisSemaphore) {
    eventually("it waits", BOUND, async || {
        usage(store).await.waiting.len() == 1
    })
    .await;
}

async fn ttl(raw: &mut Raw) -> i64 {
    raw.cmd(&["PTTL", QUEUE]).await.int()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_begins_after_a_revocation_ends_some_leases_after_its_waiters() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let revoked = granted(&store, 1).await;
    assert!(revoke(&store, &first(&store).await.id).await);
    drop(revoked);
    let _holder = granted(&store, 9).await;
    let waiter = tokio::spawn(store.acquire(claim(1).with_wait(WAIT)));
    queued(&store).await;
    let (ttl, leases) = (ttl(&mut raw).await, LEASE.as_millis() as i64);
    assert!((1..=8 * leases).contains(&ttl), "{ttl}");
    waiter.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_lasts_while_a_claim_waits_in_it_however_long_ago_a_permit_was_revoked() {
    const SHORT: Duration = Duration::from_millis(600);
    let (server, mut raw) = started().await;
    let store = store(&server.url(), SHORT).await;
    let _revoked = granted(&store, 1).await;
    let id = first(&store).await.id;
    let _holder = granted(&store, 8).await;
    let waiter = tokio::spawn(store.acquire(claim(9).with_wait(WAIT)));
    queued(&store).await;
    assert!(revoke(&store, &id).await);
    let start = Instant::now();
    while start.elapsed() < 10 * SHORT {
        assert_eq!(raw.zcard(QUEUE).await, 1, "after {:?}", start.elapsed());
        let ttl = ttl(&mut raw).await;
        assert!(ttl > 0, "{ttl} after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    waiter.abort();
}
