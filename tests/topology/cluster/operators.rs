//! Operators' calls while the cluster changes.
//!
//! Promises: P24.

use super::{BOUND, connect, name, patient};
use futures_util::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use testing::{redis::Cluster, resp::Raw, wait::eventually};
use tokio::time::timeout;
use tower_semaphore::{
    Claim, Operate, Permit, Policy, RedisSemaphore, Semaphore,
    semaphore::{Key, StoredKey},
};

/// A semaphore with five holders and three waiters, in a slot of node 0.
struct Busy {
    cluster: Cluster,
    store: RedisSemaphore,
    key: String,
    slot: usize,
    _held: Vec<Permit>,
}

impl Busy {
    async fn new() -> Self {
        let cluster = Cluster::of_primaries(3).await;
        let store = connect(patient(), &cluster).await;
        let key = cluster.keys_of(0, 1, name).await.remove(0);
        let claim = Claim::new(key.as_str()).with_limit(5);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(store.acquire(claim.clone()).await.expect("there is room"));
        }
        for _ in 0..3 {
            tokio::spawn(store.acquire(claim.clone().with_wait(BOUND * 4)));
        }
        let mut raw = cluster.raw(0).await;
        let queue = format!("{}:queue", name(&key));
        eventually("three claims wait", BOUND, async || {
            raw.zcard(&queue).await == 3
        })
        .await;
        let slot = cluster.slot(&name(&key)).await;
        Self {
            cluster,
            store,
            key,
            slot,
            _held: held,
        }
    }

    fn policy_and_key(&self) -> (Policy, Key) {
        (Policy::DEFAULT, Key::from(self.key.as_str()))
    }

    /// Moves the semaphore's key with this suffix to node 1.
    async fn move_key(&self, suffix: &str) {
        let port = self.cluster.node_port(1);
        let key = format!("{}:{suffix}", name(&self.key));
        let migrate = ["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
        let moved = self.cluster.raw(0).await.cmd(&migrate).await;
        assert_eq!(moved.text(), "OK");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_right_wherever_the_keys_of_a_moving_semaphore_are() {
    let busy = Busy::new().await;
    let (policy, key) = busy.policy_and_key();
    // The pause is shorter than the claims' waits, because a claim whose wait ends before a pause does leaves the
    // queue.
    let paused = busy.store.pause(&policy, &key, BOUND, "");
    paused.await.expect("it is paused");
    busy.cluster.begin_move(busy.slot, 0, 1).await;
    for suffix in ["alive", "queue", "held"] {
        busy.move_key(suffix).await;
        let counts = busy
            .store
            .counts(&policy, &[StoredKey::whole(key.clone())])
            .await;
        let counts = &counts.expect("it answers")[0];
        let seen = (counts.units, counts.waiting, counts.pause.is_some());
        assert_eq!(seen, (5, 3, true), "after {suffix} has moved");
    }
}

/// One call cannot count all of these keys, and the store's map of slots is outdated for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn many_keys_whose_slots_have_just_moved_are_counted() {
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let keys = cluster.keys_of(0, 600, name).await;
    let slots: BTreeSet<usize> =
        join_all(keys.iter().map(async |key| cluster.slot(&name(key)).await))
            .await
            .into_iter()
            .collect();
    let held = store.acquire(Claim::new(keys[7].as_str()).with_limit(5));
    let held = held.await.expect("there is room");
    for slot in slots {
        cluster.move_slot(slot, 0, 1).await;
    }
    let stored: Vec<_> = keys
        .iter()
        .map(|key| StoredKey::whole(Key::from(key.as_str())))
        .collect();
    let counts = store
        .counts(&Policy::DEFAULT, &stored)
        .await
        .expect("it answers");
    let units: Vec<_> = counts.iter().map(|counts| counts.units).collect();
    let expected: Vec<_> = (0..600).map(|at| u32::from(at == 7)).collect();
    assert_eq!(units, expected);
    drop(held);
}

/// The number of commands that a node has refused with `CLUSTERDOWN`.
async fn refusals(raw: &mut Raw) -> u64 {
    let stats = raw.cmd(&["INFO", "errorstats"]).await;
    let text = stats.text().to_owned();
    let count = text.split_once("errorstat_CLUSTERDOWN:count=");
    let count = count.map(|(_, rest)| rest.split(['\r', '\n']).next().unwrap_or_default());
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// Takes the cluster down by removing a slot, starts the call, and brings the cluster up once a command was refused.
async fn run_across_an_outage<T>(busy: &Busy, call: impl Future<Output = T>) -> T {
    let (mut raw, slot) = (busy.cluster.raw(0).await, free_slot(busy));
    let change = async |raw: &mut Raw, how: &str| {
        let reply = raw.cmd(&["CLUSTER", how, &slot]).await;
        assert_eq!(reply.text(), "OK", "{how}");
    };
    change(&mut raw, "DELSLOTS").await;
    eventually("the cluster is down", BOUND, async || {
        let info = raw.cmd(&["CLUSTER", "INFO"]).await;
        info.text().contains("cluster_state:fail")
    })
    .await;
    let before = refusals(&mut raw).await;
    // The refused command may be another one of the store. But the call is polled first, so it is probably refused too.
    let restore = async {
        eventually("the call is refused", BOUND, async || {
            refusals(&mut raw).await > before
        })
        .await;
        change(&mut raw, "ADDSLOTS").await;
    };
    let both = async { tokio::join!(call, restore) };
    timeout(BOUND * 2, both)
        .await
        .expect("the call ends in time")
        .0
}

/// A slot of node 0 without keys: any but the semaphore's.
fn free_slot(busy: &Busy) -> String {
    let slot = if busy.slot == 1 { 2 } else { 1 };
    assert_eq!(busy.cluster.first_owner(slot), 0);
    slot.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_calls_outlast_an_outage_of_a_cluster_with_full_coverage() {
    let busy = Busy::new().await;
    for node in 0..3 {
        let all = ["CONFIG", "SET", "cluster-require-full-coverage", "yes"];
        let reply = busy.cluster.raw(node).await.cmd(&all).await;
        assert_eq!(reply.text(), "OK");
    }
    let (policy, key) = busy.policy_and_key();
    let store = &busy.store;
    let usage = run_across_an_outage(&busy, store.usage(&policy, &key)).await;
    let usage = usage.expect("the cluster is up again");
    assert_eq!((usage.units, usage.waiting.len()), (5, 3));
    // A refused call has not run, so even a call that may run only once is sent again.
    let id = usage.held[0].id.clone();
    let revoked = run_across_an_outage(&busy, store.revoke(&policy, &key, &id)).await;
    assert!(revoked.expect("it is up again"));
    let pause = store.pause(&policy, &key, Duration::from_secs(60), "");
    run_across_an_outage(&busy, pause)
        .await
        .expect("it is up again");
    let resumed = run_across_an_outage(&busy, store.resume(&policy, &key)).await;
    assert!(resumed.expect("the cluster is up again"));
}
