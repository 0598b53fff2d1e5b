//! Alone in its process, so that the process's memory is of this test only.

#![cfg(all(feature = "redis", target_os = "linux"))]

use std::{fs, time::Duration};
use testing::redis::RedisServer;
use tokio::task::JoinSet;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PATIENCE: Duration = Duration::from_secs(10);
const CLIENTS: usize = 16;
const WARM_UP: usize = 20_000;
const REQUESTS: usize = 100_000;
/// What an allocator may keep; a permit that is not forgotten takes a few times as much.
const NOISE: usize = 50 * REQUESTS;

/// The memory of this process that is really there.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident
        .expect("it has a size")
        .trim()
        .trim_end_matches(" kB");
    kib.parse::<usize>().expect("a number") * 1024
}

/// Permits that are released at once, by concurrent clients.
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
async fn a_hundred_thousand_short_requests_leave_no_memory_behind_whatever_the_lease() {
    let server = RedisServer::start();
    // A busy machine is no failure of the store.
    let builder = RedisSemaphore::builder().lease(DAY).timeout(PATIENCE);
    let store = builder.connect(server.url()).await.expect("it connects");
    requests(&store, WARM_UP).await;
    let before = resident();
    requests(&store, REQUESTS).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < NOISE, "{} KiB more", grown / 1024);
}
