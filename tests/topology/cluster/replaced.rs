//! One node leaves a cluster, or all nodes are replaced.
//!
//! Promises: P18.

use super::{BOUND, connect, messages, name, patient};
use std::time::Duration;
use testing::{front::Front, machine::beside_others, redis::Cluster, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// Removes a primary after its replica has taken over. The other nodes forget it.
async fn remove(cluster: &Cluster, node: usize, node_count: usize) {
    let replica = cluster.replica_of(node);
    let mut raw = cluster.raw(replica).await;
    eventually("its replica takes its place", BOUND, async || {
        raw.cmd(&["CLUSTER", "FAILOVER"]).await;
        cluster.is_primary(replica).await && !cluster.is_primary(node).await
    })
    .await;

    let mut raw = cluster.raw(node).await;
    let id = raw.cmd(&["CLUSTER", "MYID"]).await;
    raw.cmd(&["CLUSTER", "RESET", "HARD"]).await;
    for other in (0..node_count).filter(|other| *other != node) {
        let forget = ["CLUSTER", "FORGET", id.text()];
        assert_eq!(cluster.raw(other).await.cmd(&forget).await.text(), "OK");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_subscribed_node_is_removed_subscribes_at_another() {
    let _share = beside_others().await;
    let cluster = Cluster::of_pairs(3).await;
    let store = connect(patient().lease(Duration::from_secs(60)), &cluster).await;
    let key = cluster.keys_of(0, 1, name).await.remove(0);
    let claim = Claim::new(key.as_str()).with_limit(1);
    let _holder = store.acquire(claim.clone()).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(claim.with_wait(BOUND * 2)));
    eventually("the store is subscribed", BOUND, async || {
        messages::subscribed(&cluster, &[0, 1, 2]).await.is_some()
    })
    .await;
    let removed = messages::subscribed(&cluster, &[0, 1, 2]).await;
    let removed = removed.expect("it is subscribed");
    remove(&cluster, removed, 6).await;
    let others: Vec<_> = (0..6).filter(|node| *node != removed).collect();
    eventually(
        "it is subscribed where messages arrive",
        BOUND,
        async || messages::subscribed(&cluster, &others).await.is_some(),
    )
    .await;
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_nodes_are_replaced_the_given_name_leads_to_the_new_nodes() {
    let _share = beside_others().await;
    let (old, new) = (
        Cluster::of_primaries(3).await,
        Cluster::of_primaries(3).await,
    );
    // Stands for a host name, which leads to a node of the old cluster and then of the new one.
    let host_name = Front::open(Duration::ZERO).await;
    host_name.point_at(old.node(0).port());
    // An attempt to read the map from a silent node takes as long as this timeout.
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(1));
    let url = format!("redis://127.0.0.1:{}/", host_name.port());
    let store = builder.connect_cluster([url]).await.expect("it connects");
    let works = async || {
        let permit = store.acquire(Claim::new("a").with_limit(1)).await;
        permit.is_ok()
    };
    assert!(works().await);
    // The old nodes stop answering, and no node announces the change.
    (0..3).for_each(|node| old.node(node).stop());
    host_name.point_at(new.node(0).port());
    eventually("it serves", BOUND, works).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_set_up_again_at_the_same_addresses_is_found() {
    let _share = beside_others().await;
    let cluster = Cluster::of_primaries(3).await;
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(1));
    let store = connect(builder, &cluster).await;
    let works = async || {
        let permit = store.acquire(Claim::new("a").with_limit(1)).await;
        permit.is_ok()
    };
    assert!(works().await);
    cluster.dissolve().await;
    // All nodes now report that no node has slots.
    for _ in 0..10 {
        assert!(!works().await);
        sleep(Duration::from_millis(100)).await;
    }
    cluster.form().await;
    eventually("it serves", BOUND, works).await;
}
