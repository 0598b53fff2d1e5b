//! One script decides for all levels: what it writes, as the server shows it.

use crate::{
    BOUND,
    server::{members, store},
};
use std::{array, time::Duration};
use testing::{
    levels::{POLICIES, claims},
    monitor::{Monitor, is_read},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::task::JoinSet;
use tower_semaphore::{AcquireError, Claim, Claims, RedisSemaphore, Semaphore};

fn waiting(claims: [Claim; 3]) -> Claims {
    claims.map(|claim| claim.with_wait(BOUND)).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn four_limits_take_one_call() {
    let server = RedisServer::start();
    let (store, mut raw) = (store(&server).await, Raw::connect(server.port()).await);
    // From then on the server knows the script.
    let first = store.acquire_all(claims("ann", [1, 1, 1]).into()).await;
    let mut monitor = Monitor::start(&server).await;
    let four = ["a", "b", "c", "d"].map(|key| Claim::new(key).with_limit(2));
    let permit = store.acquire_all(four.into()).await.expect("there is room");
    let calls = monitor.calls(&mut raw).await;
    let calls = calls.iter().filter(|call| call.names("{concurrency:a}"));
    assert_eq!(calls.count(), 1);
    drop((first, permit));
}

/// All keys but those that tell of processes, which may come at any time.
async fn keys_but_of_processes(raw: &mut Raw) -> Vec<Vec<u8>> {
    let mut keys = raw.keys("*").await;
    keys.retain(|key| !key.starts_with(b"semaphore:process"));
    keys
}

/// The commands of all calls that name a key. A first call fails without any, where the server does
/// not know the script yet.
async fn commands_for(monitor: &mut Monitor, raw: &mut Raw, key: &str) -> Vec<Vec<String>> {
    let calls = monitor.calls(raw).await.into_iter();
    let calls = calls.filter(|call| call.names(key));
    calls.flat_map(|call| call.commands).collect()
}

/// Whether a command changes nothing here: what is removed is not there.
fn is_harmless(command: &[String]) -> bool {
    is_read(command) || ["ZREM", "ZREMRANGEBYSCORE"].contains(&&*command[0])
}

/// A claim waits at the fleet meanwhile, so that there is somebody to wake.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_refused_by_a_wider_limit_writes_nothing_at_the_others_and_wakes_nobody() {
    let server = RedisServer::start();
    let (store, mut raw) = (store(&server).await, Raw::connect(server.port()).await);
    let [.., fleet] = claims("bob", [1, 9, 2]);
    let _held = store.acquire(fleet.clone()).await.expect("there is room");
    let heavy = fleet.with_weight(2).with_wait(BOUND);
    let waits = tokio::spawn(store.acquire(heavy));
    let queued = async || members(&mut raw, "queue").await == [0, 0, 1];
    eventually("it waits", BOUND, queued).await;
    let before = keys_but_of_processes(&mut raw).await;

    let mut monitor = Monitor::start(&server).await;
    let refused = store.acquire_all(claims("ann", [1, 9, 2]).into()).await;
    assert!(matches!(refused, Err(AcquireError::Full { .. })));
    let commands = commands_for(&mut monitor, &mut raw, "{account:ann}").await;
    let mut words = commands.iter().flatten();
    assert!(words.any(|word| word.starts_with("semaphore:{fleet:")));
    let harmful: Vec<_> = commands
        .iter()
        .filter(|command| !is_harmless(command))
        .collect();
    assert!(harmful.is_empty(), "{harmful:?}");
    assert_eq!(members(&mut raw, "held").await, [0, 0, 1]);
    assert_eq!(keys_but_of_processes(&mut raw).await, before);
    assert!(!waits.is_finished());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_claim_that_waited_gives_back_every_level() {
    let server = RedisServer::start();
    let (store, mut raw) = (store(&server).await, Raw::connect(server.port()).await);
    let [.., fleet] = claims("bob", [1, 1, 1]);
    let held = store.acquire(fleet).await.expect("there is room");
    let mut monitor = Monitor::start(&server).await;
    let short = claims("ann", [3, 3, 1]).map(|claim| {
        let heavy = claim.limit().expect("it has one");
        claim
            .with_weight(heavy)
            .with_wait(Duration::from_millis(50))
    });
    let over = store.acquire_all(short.into()).await;
    assert!(matches!(over, Err(AcquireError::Full { .. })), "{over:?}");
    // Its last poll gives all back itself, whether or not a release comes later.
    let calls = monitor.calls(&mut raw).await.into_iter();
    let polls = calls.filter(|call| call.names("{account:ann}") && call.names("{fleet:all}"));
    let commands = polls.flat_map(|call| call.commands);
    let is_freed = |command: &Vec<String>| command[0] == "ZREM" && command[1].ends_with(":held");
    let removed: Vec<_> = commands.filter(is_freed).collect();
    assert!(removed.len() >= 6, "{removed:?}");
    assert_eq!(members(&mut raw, "held").await, [0, 0, 1]);
    assert_eq!(members(&mut raw, "queue").await, [0, 0, 0]);
    drop(held);
}

/// Each contender claims with no wait, again and again, and holds what it was granted for a moment.
async fn contend(store: RedisSemaphore, claims: Claims, rounds: u32) -> (u32, u32) {
    let (mut granted, mut refused) = (0, 0);
    for round in 0..rounds {
        match store.acquire_all(claims.clone()).await {
            Ok(permit) => {
                granted += 1;
                tokio::time::sleep(Duration::from_millis(u64::from(round % 3))).await;
                assert!(permit.release().await);
            }
            Err(AcquireError::Full { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    (granted, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_contenders_over_three_limits_nobody_holds_a_unit_that_it_was_refused() {
    const ROUNDS: u32 = 20;
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let mut monitor = Monitor::start(&server).await;
    let stores = [store(&server).await, store(&server).await];
    let mut contenders = JoinSet::new();
    for contender in 0..50 {
        // The limits of the accounts, of the route and of the fleet all refuse some.
        let account = format!("account-{}", contender % 4);
        let store = stores[contender % 2].clone();
        contenders.spawn(contend(store, claims(&account, [4, 9, 7]).into(), ROUNDS));
    }
    let (granted, refused) = contenders
        .join_all()
        .await
        .into_iter()
        .fold((0, 0), |sums: (u32, u32), counts| {
            (sums.0 + counts.0, sums.1 + counts.1)
        });
    assert!(granted > 0 && refused > 0, "{granted} and {refused}");
    assert_eq!(members(&mut raw, "held").await, [0, 0, 0]);
    let mut added = [0; 3];
    for call in monitor.calls(&mut raw).await {
        let units = added_units(&call.commands);
        assert!(units.iter().all(|count| *count == units[0]), "{call:?}");
        added = array::from_fn(|level| added[level] + units[level]);
    }
    assert_eq!(added, [granted as usize; 3]);
}

/// How many units a script has added at each level. A refresh, which a busy machine needs, adds none:
/// it moves the ends of those that are there.
fn added_units(commands: &[Vec<String>]) -> [usize; 3] {
    let adds = |command: &&Vec<String>| command[0] == "ZADD" && command[2] != "XX";
    POLICIES.map(|policy| {
        let begin = format!("semaphore:{{{policy}:");
        let added = commands
            .iter()
            .filter(adds)
            .filter(|command| command[1].starts_with(&begin) && command[1].ends_with(":held"));
        // A score and a member for each unit.
        added.map(|command| (command.len() - 2) / 2).sum()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_claims_that_wait_over_three_limits_are_all_granted() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let stores = [store(&server).await, store(&server).await];
    let mut waiters = JoinSet::new();
    for waiter in 0..50 {
        let account = format!("account-{}", waiter % 4);
        let store = stores[waiter % 2].clone();
        waiters.spawn(async move {
            let permit = store
                .acquire_all(waiting(claims(&account, [4, 6, 5])))
                .await;
            let permit = permit.expect("it is granted in time");
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(permit.release().await);
        });
    }
    while let Some(done) = waiters.join_next().await {
        done.expect("no panic");
        for (held, limit) in members(&mut raw, "held").await.into_iter().zip([16, 6, 5]) {
            assert!(held <= limit, "{held} of {limit}");
        }
    }
    assert_eq!(members(&mut raw, "held").await, [0, 0, 0]);
    assert_eq!(members(&mut raw, "queue").await, [0, 0, 0]);
}
