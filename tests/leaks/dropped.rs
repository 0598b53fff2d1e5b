//! A store that is dropped while Redis is unreachable. The test runs in a separate process, so that it has the only
//! keeper.
//!
//! Promises: P11.

use std::{fs, time::Duration};
use testing::{machine::alone, redis::RedisServer};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// The CPU time of the keeper's thread in clock ticks (10 ms each), or `None` if the thread does not exist.
fn ticks() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("procfs");
    let mut stats = tasks.flatten().filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let fields: Vec<_> = tail.split_whitespace().collect();
        // The ticks in user mode and in the kernel, fields 14 and 15. `tail` begins with field 3.
        let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        head.ends_with("(tower-semaphore").then_some(ticks)
    });
    stats.next()
}

/// The clock ticks that the keeper uses in two seconds. A busy loop uses dozens, even on a busy machine.
async fn ticks_used() -> u64 {
    let start = ticks().expect("the keeper runs");
    sleep(Duration::from_secs(2)).await;
    ticks().expect("the keeper runs") - start
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_dropped_during_an_outage_leaves_no_busy_loop() {
    let _alone = alone().await;
    let mut server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(30));
    let store = builder.connect(server.url()).await.expect("it connects");
    // A release needs the keeper, so its thread runs and has its name.
    let warm = store.acquire(Claim::new("warm").with_limit(1)).await;
    assert!(warm.expect("there is room").release().await);
    let permit = store.acquire(Claim::new("a").with_limit(1)).await;
    let permit = permit.expect("there is room");
    server.kill();
    drop(permit);
    let with_store = ticks_used().await;
    drop(store);
    // The keeper still runs, because the release of the permit is pending.
    let without = ticks_used().await;
    assert!(without < 20, "{without} of 200 ticks, {with_store} before");
}
