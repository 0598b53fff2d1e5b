//! Grants that count only once replicas have them, on nodes that fail.
//!
//! Promises: P1.

use super::{BOUND, connect, name, patient};
use std::{error::Error as _, time::Duration};
use testing::{machine::beside_others, redis::Cluster, wait::eventually};
use tower_semaphore::{AcquireError, Claim, Permit, Semaphore, redis::Error};

fn is_not_replicated(answer: &Result<Permit, AcquireError>) -> bool {
    let Err(error) = answer else { return false };
    let error = error
        .source()
        .and_then(|source| source.downcast_ref::<Error>());
    error.is_some_and(|error| error.to_string().contains("only 0 replicas"))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_node_whose_replica_is_silent_stops_granting() {
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
