//! The memory that remains after load. The tests run in a separate process, one after another, because they measure the
//! memory of the whole process.
//!
//! Promises: P11.

mod outage;

use futures_util::{StreamExt, stream};
use std::{fs, time::Duration};
use testing::{machine::alone, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than a second, after which the keeper has handled each permit at least once.
const TICK: Duration = Duration::from_millis(1_200);
const CLIENTS: usize = 16;
const WARM_UP: usize = 20_000;
const REQUESTS: usize = 100_000;
/// The memory that the allocator may keep: 50 bytes for each request. A leaked permit takes a few times that.
const NOISE: usize = 50 * REQUESTS;

/// The resident memory of this process.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident
        .expect("it has a size")
        .trim()
        .trim_end_matches(" kB");
    kib.parse::<usize>().expect("a number") * 1024
}

/// Takes permits and releases them at once, from concurrent clients.
async fn requests(store: &RedisSemaphore, count: usize) {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let store = store.clone();
        let claim = Claim::new(format!("account-{client}")).with_limit(1_000);
        clients.spawn(async move {
            for _ in 0..count / CLIENTS {
                drop(store.acquire(claim.clone()).await.expect("there is room"));
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("it did not panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_outlive_a_tick_leave_no_memory_behind_whatever_the_lease() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(DAY).timeout(PATIENCE);
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let mut sizes = Vec::new();
    for round in 0..5 {
        // Accounts that the store has not seen before.
        let claims = (0..WARM_UP).map(|number| {
            let claim = Claim::new(format!("account-{round}-{number}")).with_limit(5);
            store.acquire(claim)
        });
        let permits: Vec<_> = stream::iter(claims).buffer_unordered(128).collect().await;
        assert!(permits.iter().all(Result::is_ok));
        sleep(TICK).await;
        drop(permits);
        eventually("all are released", PATIENCE, async || {
            raw.keys("*:held").await.is_empty()
        })
        .await;
        sleep(TICK).await;
        sizes.push(resident());
    }
    // The first two rounds warm the process up, so three count.
    // A leaked lease would take 200 bytes, and a leaked name 100.
    let grown = sizes[4].saturating_sub(sizes[1]);
    assert!(grown < 3 * WARM_UP * 100, "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_short_requests_leave_no_memory_behind_whatever_the_lease() {
    let _alone = alone().await;
    let server = RedisServer::start();
    // The timeout tolerates a busy machine.
    let builder = RedisSemaphore::builder().lease(DAY).timeout(PATIENCE);
    let store = builder.connect(server.url()).await.expect("it connects");
    requests(&store, WARM_UP).await;
    let before = resident();
    requests(&store, REQUESTS).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < NOISE, "{} KiB more", grown / 1024);
}
