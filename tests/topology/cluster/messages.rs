//! Waiters are woken by messages, through any node.
//!
//! Promises: P15.

use super::{BOUND, connect, name, patient};
use std::time::{Duration, Instant};
use testing::{machine::beside_others, monitor::Monitor, redis::Cluster, wait::eventually};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::Builder};

/// With this lease a waiter polls only every five seconds.
fn slow_to_poll() -> Builder {
    patient().lease(Duration::from_secs(60))
}

/// The node on which a store is subscribed, if any.
pub(crate) async fn subscribed(cluster: &Cluster, nodes: &[usize]) -> Option<usize> {
    for &node in nodes {
        let channels = cluster
            .raw(node)
            .await
            .cmd(&["PUBSUB", "CHANNELS", "*"])
            .await;
        if !channels.array().is_empty() {
            return Some(node);
        }
    }
    None
}

/// The time from a release until the waiter is granted, for a key of this node.
async fn wake(store: &RedisSemaphore, cluster: &Cluster, node: usize) -> Duration {
    let key = cluster.keys_of(node, 1, name).await.remove(0);
    let claim = Claim::new(key.as_str()).with_limit(1);
    let holder = store.acquire(claim.clone()).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(claim.with_wait(BOUND)));
    let queue = format!("{}:queue", name(&key));
    eventually("it waits", BOUND, async || {
        cluster.raw(node).await.zcard(&queue).await == 1
    })
    .await;
    eventually("the store is subscribed", BOUND, async || {
        subscribed(cluster, &[0, 1, 2]).await.is_some()
    })
    .await;
    let start = Instant::now();
    drop(holder);
    let waiter = waiting.await.expect("no panic").expect("it is granted");
    let took = start.elapsed();
    assert!(waiter.release().await);
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_on_every_node_are_woken_and_do_not_poll() {
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(slow_to_poll(), &cluster).await;
    for node in 0..3 {
        // Busy machines get three attempts. A poll would take seconds each time.
        let mut took = BOUND;
        for _ in 0..3 {
            took = took.min(wake(&store, &cluster, node).await);
        }
        assert!(took < Duration::from_secs(1), "node {node}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_sends_only_heartbeats() {
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(slow_to_poll(), &cluster).await;
    let key = cluster.keys_of(1, 1, name).await.remove(0);
    let claim = Claim::new(key.as_str()).with_limit(1);
    let _holder = store.acquire(claim.clone()).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(claim.with_wait(BOUND)));
    eventually("the store is subscribed", BOUND, async || {
        subscribed(&cluster, &[0, 1, 2]).await.is_some()
    })
    .await;
    let mut raw = cluster.raw(1).await;
    let mut monitor = Monitor::start(cluster.node(1)).await;
    // The sleep is the point of this test: the time of one or two polls.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let calls = monitor.calls(&mut raw).await;
    let polls = calls.iter().filter(|call| call.is_poll()).count();
    // One is due every five seconds, and one because the subscription is new.
    assert!((1..=2).contains(&polls), "{polls} polls");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_the_subscription_dies_and_the_store_subscribes_at_another() {
    let _share = beside_others().await;
    let mut cluster = Cluster::of_primaries(3).await;
    let store = connect(slow_to_poll(), &cluster).await;
    // The store subscribes for this waiter.
    wake(&store, &cluster, 0).await;
    let dead = subscribed(&cluster, &[0, 1, 2])
        .await
        .expect("it is subscribed");
    cluster.node_mut(dead).kill();
    let living: Vec<_> = (0..3).filter(|node| *node != dead).collect();
    let key = cluster.keys_of(living[0], 1, name).await.remove(0);
    let claim = Claim::new(key.as_str()).with_limit(1);
    let holder = store.acquire(claim.clone()).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(claim.with_wait(BOUND)));
    eventually("the store is subscribed again", BOUND, async || {
        subscribed(&cluster, &living).await.is_some()
    })
    .await;
    let start = Instant::now();
    drop(holder);
    let waiter = waiting.await.expect("no panic").expect("it is granted");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(waiter.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_silent_replica_does_not_make_a_check_fail() {
    let _share = beside_others().await;
    let cluster = Cluster::of_pairs(3).await;
    let store = connect(patient(), &cluster).await;
    store.check().await.expect("all answer");
    cluster.node(cluster.replica_of(1)).stop();
    // Each node gets its turn.
    for _ in 0..6 {
        store.check().await.expect("the others answer");
    }
}
