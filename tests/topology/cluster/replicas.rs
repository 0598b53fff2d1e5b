//! Grants that count only once replicas have them, on nodes that fail.

use super::{BOUND, connect, load::Load, name, patient};
use std::{error::Error as _, time::Duration};
use testing::{machine::beside_others, redis::Cluster, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{AcquireError, Claim, Permit, Semaphore, redis::Error};

fn is_not_replicated(answer: &Result<Permit, AcquireError>) -> bool {
    let Err(error) = answer else { return false };
    let error = error.source().and_then(|source| source.downcast_ref());
    matches!(error, Some(Error::NotReplicated { 0: 0, .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_replica_is_silent_grants_nothing_and_the_others_do() {
    let _share = beside_others().await;
    let cluster = Cluster::of_pairs(3).await;
    let builder = patient().timeout(Duration::from_secs(1)).min_replicas(1);
    let store = connect(builder, &cluster).await;
    let mut claims = Vec::new();
    for node in 0..3 {
        let key = cluster.keys_of(node, 1, name).await.remove(0);
        claims.push(Claim::new(key).with_limit(1));
    }
    for claim in &claims {
        let permit = store.acquire(claim.clone()).await.expect("there is room");
        assert!(permit.release().await);
    }
    cluster.node(cluster.replica_of(1)).stop();
    let answer = store.acquire(claims[1].clone()).await;
    assert!(is_not_replicated(&answer), "{answer:?}");
    for claim in [&claims[0], &claims[2]] {
        let permit = store.acquire(claim.clone()).await.expect("there is room");
        assert!(permit.release().await);
    }
    cluster.node(cluster.replica_of(1)).cont();
    eventually("it grants again", BOUND, async || {
        store.acquire(claims[1].clone()).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_known_to_the_replica_that_takes_the_place_of_a_dead_primary() {
    let _share = beside_others().await;
    let mut cluster = Cluster::of_pairs(3).await;
    let builder = patient().timeout(Duration::from_secs(1)).min_replicas(1);
    let store = connect(builder.lease(BOUND), &cluster).await;
    let keys = cluster.keys_of(0, 40, name).await;
    let (held, busy) = keys.split_at(20);
    let load = Load::start(&store, busy);
    let mut permits = Vec::new();
    for key in held {
        let claim = Claim::new(key.as_str()).with_limit(1);
        permits.push(store.acquire(claim).await.expect("there is room"));
    }
    cluster.node_mut(0).kill();
    eventually("its replica is promoted", BOUND, async || {
        cluster.is_primary(cluster.replica_of(0)).await
    })
    .await;
    sleep(Duration::from_millis(200)).await;
    // It has no replica of its own yet, so nothing is granted, but it knows what was.
    let mut raw = cluster.raw(cluster.replica_of(0)).await;
    for key in held {
        assert_eq!(raw.zcard(&format!("{}:held", name(key))).await, 1);
    }
    let answer = store
        .acquire(Claim::new(held[0].as_str()).with_limit(2))
        .await;
    assert!(
        matches!(answer, Err(AcquireError::Store { .. })),
        "{answer:?}"
    );
    let (_, most) = load.stop().await;
    assert_eq!(most, 1, "held a key of one");
    cluster.node_mut(0).restart();
}
