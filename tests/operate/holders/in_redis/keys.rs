//! The keys of a queue, of which one remembers a revocation for longer than the others last.

use super::{LEASE, claim, granted, revoke, started, store, usage};
use crate::holders::BOUND;
use std::time::Duration;
use testing::{resp::Raw, wait::eventually};
use tower_semaphore::{RedisSemaphore, Semaphore};

const QUEUE: &str = "semaphore:{concurrency:a}:queue";

/// How long a key lasts that was just used, and no use extends one that lasts for longer than the second.
const LASTS: i64 = 8 * LEASE.as_millis() as i64;
const LONG: i64 = 7 * LEASE.as_millis() as i64;

async fn ttl(raw: &mut Raw) -> i64 {
    raw.cmd(&["PTTL", QUEUE]).await.int()
}

/// As many claims wait.
async fn wait(store: &RedisSemaphore, count: usize) {
    eventually("they wait", BOUND, async || {
        usage(store).await.waiting.len() == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_begins_after_a_revocation_expires() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let revoked = granted(&store, 9).await;
    assert!(revoke(&store, &usage(&store).await.held[0].id).await);
    let _held = granted(&store, 9).await;
    let waiting = claim(1).with_wait(Duration::from_secs(1_000));
    let waiter = tokio::spawn(store.acquire(waiting));
    wait(&store, 1).await;
    let ttl = ttl(&mut raw).await;
    assert!((1..=LASTS).contains(&ttl), "{ttl}");
    waiter.abort();
    drop(revoked);
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_keep_a_queue_in_which_a_claim_was_revoked() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let _held = granted(&store, 9).await;
    let waiting = || claim(1).with_wait(Duration::from_secs(1_000));
    let waiters = [
        tokio::spawn(store.acquire(waiting())),
        tokio::spawn(store.acquire(waiting())),
    ];
    wait(&store, 2).await;
    assert!(revoke(&store, &usage(&store).await.waiting[0].id).await);
    wait(&store, 1).await;
    let soon = (LONG / 2).to_string();
    raw.cmd(&["PEXPIRE", QUEUE, &soon]).await;
    eventually("a poll extends it", BOUND, async || {
        ttl(&mut raw).await > LONG
    })
    .await;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}
