//! A server that was stopped for longer than a lease, and goes on.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use testing::rig::{BOUND, Rig};
use testing::wait::eventually;
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(2);
const STOP: Duration = Duration::from_secs(5);
/// Within this after the stop, no stale acquire blocks a key any more.
const BACK: Duration = Duration::from_millis(1_500);
const KEYS: u64 = 40;

fn claim(key: u64) -> Claim {
    Claim::new(key).with_limit(1)
}

/// A client for each key, which retries until it is granted.
async fn clients_come(store: &RedisSemaphore, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for key in 0..KEYS {
            let acquire = store.acquire(claim(key));
            tokio::spawn(async move { drop(acquire.await) });
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The keys for which a lone client gets the answer that their limit is reached, and those for
/// which it gets a permit.
async fn full_and_granted(store: &RedisSemaphore, time: Duration) -> [BTreeSet<u64>; 2] {
    let (end, mut full, mut granted) = (Instant::now() + time, BTreeSet::new(), BTreeSet::new());
    while Instant::now() < end {
        for key in 0..KEYS {
            match store.acquire(claim(key)).await {
                Ok(permit) => {
                    granted.insert(key);
                    permit.release().await;
                }
                Err(AcquireError::Full { .. }) => drop(full.insert(key)),
                // A busy machine may answer late.
                Err(_) => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    [full, granted]
}

async fn answers(store: &RedisSemaphore) -> bool {
    let answer = store.acquire(Claim::new("another").with_limit(1)).await;
    !matches!(answer, Err(AcquireError::Store(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn acquires_that_lay_in_a_stopped_servers_sockets_block_nobody() {
    let rig = Rig::new(RedisSemaphore::builder().lease(LEASE)).await;
    rig.server.stop();
    clients_come(&rig.store, STOP).await;
    rig.server.cont();
    tokio::time::sleep(BACK).await;
    eventually("it answers", BOUND, async || answers(&rig.store).await).await;
    let [full, granted] = full_and_granted(&rig.store, LEASE).await;
    assert!(!granted.is_empty(), "the server goes on");
    assert!(
        full.is_empty(),
        "limits reached with nobody holding: {full:?}"
    );
}
