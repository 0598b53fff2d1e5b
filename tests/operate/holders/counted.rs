//! The counts of many keys in one call, and the list of live processes.
//!
//! Promises: P24.

use super::{Store, claim, facts_of_operators, granted, queued, usage, wait_for_usage, waiting};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use std::{collections::HashSet, fmt::Write};
use tower_semaphore::{
    Policy,
    semaphore::{KeyCounts, StoredKey},
};

facts_of_operators! {
    counts_agree_with_the_usage_of_each_key
    unused_keys_count_nothing
    long_keys_and_flows_are_listed_and_counted_by_their_sha_256
    this_process_is_alive
}

async fn counts(store: &Store, keys: &[StoredKey]) -> Vec<KeyCounts> {
    let counts = store.counts(&Policy::DEFAULT, keys).await;
    counts.expect("the store answers")
}

async fn counts_agree_with_the_usage_of_each_key(store: Store) {
    let heavy = granted(&store, &claim("a", 5).with_weight(4)).await;
    let others = ["b", "c", "c"].map(|key| claim(key, 2));
    let mut permits = Vec::new();
    for claim in &others {
        permits.push(granted(&store, claim).await);
    }
    let (_waiter, _) = queued(&store, waiting("a", 5).with_weight(2), 0).await;
    let long = "k".repeat(100);
    permits.push(granted(&store, &claim(&*long, 1)).await);

    let keys = ["c", "a", "b", "nobody", &long].map(StoredKey::whole);
    let counted = counts(&store, &keys).await;
    for (counts, key) in counted.iter().zip(["c", "a", "b", "nobody", &long]) {
        let usage = usage(&store, key).await;
        let waiting = usage.waiting.len() as u32;
        assert_eq!(
            (counts.units, counts.waiting),
            (usage.units, waiting),
            "{key}"
        );
        assert_eq!(counts.key, StoredKey::whole(key));
    }
    assert_eq!((counted[1].units, counted[1].waiting), (4, 1));
    drop(heavy);
    wait_for_usage(&store, "a", "the waiter is granted", |usage| {
        usage.waiting.is_empty()
    })
    .await;
    let [after] = &counts(&store, &keys[1..2]).await[..] else {
        panic!("one key");
    };
    assert_eq!((after.units, after.waiting), (2, 0));
}

async fn unused_keys_count_nothing(store: Store) {
    assert_eq!(counts(&store, &[]).await, []);
    let keys = [StoredKey::whole("a"), StoredKey::hashed("0".repeat(64))];
    for counts in counts(&store, &keys).await {
        assert_eq!((counts.units, counts.waiting), (0, 0));
    }
}

async fn long_keys_and_flows_are_listed_and_counted_by_their_sha_256(store: Store) {
    let [whole, long] = [64, 65].map(|length| "k".repeat(length));
    let mut hash = String::new();
    for byte in Sha256::digest(&long) {
        write!(hash, "{byte:02x}").expect("a string takes it");
    }
    let stored = HashSet::from([StoredKey::whole(&*whole), StoredKey::hashed(hash)]);
    let claims = [&*whole, &*long].map(|key| claim(key, 1));
    let _permits = [
        granted(&store, &claims[0]).await,
        granted(&store, &claims[1]).await,
    ];
    let listed: HashSet<_> = store
        .keys(&Policy::DEFAULT)
        .map(Result::unwrap)
        .collect()
        .await;
    assert_eq!(listed, stored);
    let listed: Vec<_> = listed.into_iter().collect();
    for counts in counts(&store, &listed).await {
        assert_eq!(counts.units, 1, "{counts:?}");
    }

    let _held = granted(&store, &claim("a", 1)).await;
    let mut waiters = Vec::new();
    for flow in [&*whole, &*long] {
        let claim = waiting("a", 1).with_flow(flow);
        waiters.push(queued(&store, claim, waiters.len()).await);
    }
    let usage = usage(&store, "a").await;
    let flows = usage.waiting.into_iter().filter_map(|info| info.flow);
    assert_eq!(flows.collect::<HashSet<_>>(), stored);

    for claim in &claims {
        let set = store.set_limit(&Policy::DEFAULT, Some(claim.key()), Some(2), "");
        set.await.expect("it is set");
    }
    let limits: Vec<_> = store.limits().map(Result::unwrap).collect().await;
    let limited = limits.into_iter().filter_map(|limit| limit.key);
    assert_eq!(limited.collect::<HashSet<_>>(), stored);
}

async fn this_process_is_alive(store: Store) {
    let processes = store.processes().await.expect("the store answers");
    assert!(
        processes
            .iter()
            .any(|process| process.pid == Some(std::process::id()))
    );
}

#[cfg(feature = "redis")]
mod in_redis {
    use super::super::{granted, usage};
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };
    use testing::{redis::RedisServer, resp::Raw, wait::eventually};
    use tower_semaphore::{AcquireError, Claim, Operate, Policy, RedisSemaphore, Semaphore};

    const BOUND: Duration = Duration::from_secs(20);

    async fn store(server: &RedisServer, is_operator: bool) -> RedisSemaphore {
        let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
        let store = builder.operator(is_operator).connect(server.url()).await;
        store.expect("it connects")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_key_of_several_pages_is_shown_whole_while_its_permits_are_refreshed() {
        const UNITS: u32 = 3_500;
        let server = RedisServer::start();
        // A lease of this length does not end early, even on a busy machine.
        let lease = Duration::from_secs(6);
        let builder = RedisSemaphore::builder().lease(lease).timeout(lease / 3);
        let store = builder.connect(server.url()).await.expect("it connects");
        let store: super::Store = Arc::new(store);
        let claim = Claim::new("a").with_limit(UNITS).with_weight(500);
        let mut permits = Vec::new();
        for _ in 0..UNITS / 500 {
            permits.push(granted(&store, &claim).await);
        }
        let start = Instant::now();
        while start.elapsed() < lease {
            let usage = usage(&store, "a").await;
            let weights: Vec<_> = usage.held.iter().map(|info| info.weight).collect();
            assert_eq!((usage.units, weights), (UNITS, vec![500; permits.len()]));
        }
        assert!(permits.iter().all(|permit| !permit.is_lost()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tool_of_operators_claims_nothing_writes_nothing_and_is_not_listed_as_a_process() {
        let server = RedisServer::start();
        let tool = store(&server, true).await;
        let refused = tool.acquire(Claim::new("a").with_limit(1)).await;
        assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
        assert_eq!(tool.processes().await.expect("it answers"), []);
        let mut raw = Raw::connect(server.port()).await;
        assert_eq!(raw.keys("*").await, Vec::<Vec<u8>>::new());

        let store = store(&server, false).await;
        eventually("one process is alive", BOUND, async || {
            let processes = tool.processes().await.expect("it answers");
            processes.len() == 1 && processes[0].pid.is_some()
        })
        .await;
        let (policy, key) = (Policy::DEFAULT, "a".into());
        let set = tool.set_limit(&policy, Some(&key), Some(2), "").await;
        set.expect("it may");
        // The new limit is shown before any claim is made under it.
        let usage = tool.usage(&policy, &key).await.expect("it answers");
        assert_eq!(usage.limit, Some(2));
        drop(store);
        eventually("it is gone", BOUND, async || {
            tool.processes().await.expect("it answers").is_empty()
        })
        .await;
    }
}
