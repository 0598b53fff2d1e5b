//! One script decides for all levels. These tests check its writes on the server. `claims` makes a claim for an
//! account, its route and the fleet, with these limits.
//!
//! Promises: P3.

use super::BOUND;
use std::time::Duration;
use testing::{
    levels::{POLICIES, claims},
    monitor::{Monitor, is_read},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

/// A store whose timeout tolerates a busy machine.
async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    builder.connect(server.url()).await.expect("it connects")
}

/// The number of members in the set of each limit.
async fn members(raw: &mut Raw, set: &str) -> [usize; 3] {
    let mut members = [0; 3];
    for (count, policy) in members.iter_mut().zip(POLICIES) {
        for key in raw.keys(format!("semaphore:2:{{{policy}:*}}:{set}")).await {
            *count += raw.zcard(key).await;
        }
    }
    members
}

#[tokio::test(flavor = "multi_thread")]
async fn four_limits_take_one_call() {
    let server = RedisServer::start();
    let (store, mut raw) = (store(&server).await, Raw::connect(server.port()).await);
    // The first call loads the script into the server.
    let first = store.acquire_all(claims("ann", [1, 1, 1]).into()).await;
    let mut monitor = Monitor::start(&server).await;
    let four = ["a", "b", "c", "d"].map(|key| Claim::new(key).with_limit(2));
    let permit = store.acquire_all(four.into()).await.expect("there is room");
    let calls = monitor.calls(&mut raw).await;
    let calls = calls.iter().filter(|call| call.names("{concurrency:a}"));
    assert_eq!(calls.count(), 1);
    drop((first, permit));
}

/// All keys except those of processes, which may appear at any time.
async fn keys_except_of_processes(raw: &mut Raw) -> Vec<Vec<u8>> {
    let mut keys = raw.keys("*").await;
    keys.retain(|key| !key.starts_with(b"semaphore:process"));
    keys
}

/// The commands of all calls that name a key. If the server does not know the script yet, the first call fails without
/// running any command.
async fn commands_for(monitor: &mut Monitor, raw: &mut Raw, key: &str) -> Vec<Vec<String>> {
    let calls = monitor.calls(raw).await.into_iter();
    let calls = calls.filter(|call| call.names(key));
    calls.flat_map(|call| call.commands).collect()
}

/// True if the command changes nothing here, because the entries that it removes are absent.
fn is_harmless(command: &[String]) -> bool {
    // The last unit of a key gets the end 0 instead of being removed. With `XX`, an absent unit stays absent.
    let ends_unit = command[0] == "ZADD" && command[2..5] == ["XX", "CH", "0"];
    is_read(command) || ends_unit || ["ZREM", "ZREMRANGEBYSCORE"].contains(&&*command[0])
}

/// Another claim waits at the fleet's limit, so a stray wake-up would be noticed.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_refused_by_a_wider_limit_writes_nothing_at_the_others_and_wakes_no_waiter() {
    let server = RedisServer::start();
    let (store, mut raw) = (store(&server).await, Raw::connect(server.port()).await);
    let [.., fleet] = claims("bob", [1, 9, 2]);
    let _held = store.acquire(fleet.clone()).await.expect("there is room");
    let heavy = fleet.with_weight(2).with_wait(BOUND);
    let waits = tokio::spawn(store.acquire(heavy));
    let queued = async || members(&mut raw, "queue").await == [0, 0, 1];
    eventually("it waits", BOUND, queued).await;
    let before = keys_except_of_processes(&mut raw).await;

    let mut monitor = Monitor::start(&server).await;
    let refused = store.acquire_all(claims("ann", [1, 9, 2]).into()).await;
    assert!(matches!(refused, Err(AcquireError::Full { .. })));
    let commands = commands_for(&mut monitor, &mut raw, "{account:ann}").await;
    let mut words = commands.iter().flatten();
    assert!(words.any(|word| word.starts_with("semaphore:2:{fleet:")));
    let harmful: Vec<_> = commands
        .iter()
        .filter(|command| !is_harmless(command))
        .collect();
    assert!(harmful.is_empty(), "{harmful:?}");
    assert_eq!(members(&mut raw, "held").await, [0, 0, 1]);
    assert_eq!(keys_except_of_processes(&mut raw).await, before);
    assert!(!waits.is_finished());
}
