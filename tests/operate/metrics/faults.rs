//! A recorder that panics when a store reports to it.
//!
//! Promises: P11, P25.

use super::recorders::{Hooked, RecorderCall};
use crate::holders::until_notified;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::redis::RedisServer;
use tower_semaphore::{
    Claim, MemorySemaphore, Operate, Permit, RedisSemaphore, Semaphore,
    observe::{LOST_PERMITS, PERMIT_DURATION},
};

const LEASE: Duration = Duration::from_millis(900);

/// A recorder that panics whenever it counts one of these metrics, and the number of its panics.
fn panicking(names: &'static [&'static str]) -> (Arc<AtomicUsize>, Hooked) {
    let panics = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&panics);
    let recorder = Hooked::new(move |name, call| {
        if names.contains(&name) && matches!(call, RecorderCall::Count(_)) {
            count.fetch_add(1, Relaxed);
            panic!("planted: the recorder panics");
        }
    });
    (panics, recorder)
}

async fn acquire(store: &impl Semaphore, key: &'static str) -> Permit {
    let claim = Claim::new(key).with_limit(1);
    store.acquire(claim).await.expect("there is room")
}

/// Revokes the only permit of a key.
async fn revoke(store: &impl Operate, key: &'static str) {
    let (policy, key) = ("concurrency".into(), key.into());
    let usage = store.usage(&policy, &key).await.expect("it answers");
    let revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
    assert!(revoked.expect("it answers"), "it is held");
}

async fn store(server: &RedisServer) -> RedisSemaphore {
    let store = RedisSemaphore::builder().lease(LEASE);
    store.connect(server.url()).await.expect("it connects")
}

/// The keeper's thread calls the recorder. If the recorder's panic ended that thread, no permit would be refreshed any
/// more.
#[tokio::test]
async fn a_process_whose_recorder_panics_at_a_revocation_keeps_its_other_permits() {
    let server = RedisServer::start();
    let (_, recorder) = panicking(&[LOST_PERMITS]);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = store(&server).await;
    let (revoked, kept) = (acquire(&store, "a").await, acquire(&store, "b").await);
    revoke(&store, "a").await;
    until_notified(&revoked).await;
    tokio::time::sleep(LEASE * 2).await;
    assert!(!kept.is_lost());
    assert!(kept.release().await, "it was not refreshed");

    // Revocations of later permits still reach their holders.
    let later = acquire(&store, "c").await;
    revoke(&store, "c").await;
    until_notified(&later).await;
}

#[tokio::test]
async fn a_permit_whose_recorder_panics_at_its_revocation_is_lost_and_free() {
    // Both recorders live to the end of the test, because the crate distinguishes recorders by their addresses.
    let recorders = [&[LOST_PERMITS], &[PERMIT_DURATION]].map(|names| panicking(names));
    for (panics, recorder) in &recorders {
        let _guard = metrics::set_default_local_recorder(recorder);
        let store = MemorySemaphore::builder().holders(true).build();
        let permit = acquire(&store, "a").await;
        revoke(&store, "a").await;
        assert_eq!((panics.load(Relaxed), permit.is_lost()), (1, true));
        assert_eq!(store.busy_keys(), 0);
    }
}
